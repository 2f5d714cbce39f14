"""Graphs with open sizes on `host`: a program for each size, which share packed weights."""

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

from npu_ir import extract_ir
from npu_runtime import IRExecutor

ROWS = ({0: Dim("rows", min=2, max=64)},)


def executor_of(model: nn.Module, x: Tensor) -> IRExecutor:
    return IRExecutor(extract_ir(model, (x,), dynamic_shapes=ROWS), model.state_dict(), backend="host")


class Scale(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x) * 2


@pytest.mark.parametrize("negated", [
    lambda: torch.randn(4, 8, dtype=torch.complex64).conj().imag,
    lambda: torch._neg_view(torch.randn(4, 8)),
], ids=["part of a conjugate", "negative view"])  # fmt: skip
def test_lazily_negated_inputs_are_what_they_say(negated: object) -> None:
    assert callable(negated)
    plain = torch.randn(4, 8)
    executor = executor_of(Scale(), plain)
    for _ in range(4):  # programs bind to what they have seen a few times
        executor(plain)

    for _ in range(3):
        x = negated()
        assert x.is_neg()
        assert torch.equal(executor(x), Scale()(x))


def test_packed_weights_are_shared_by_all_sizes() -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 64)).eval()
    executor = executor_of(model, torch.randn(3, 64))

    packed = []
    for count in (2, 9, 33):
        x = torch.randn(count, 64)
        with torch.no_grad():
            torch.testing.assert_close(executor(x), model(x))
        values = executor.for_call((x,))._engine.bound.values
        packed.append({item.data_ptr() for value, item in values.items() if value.producer is not None})

    assert packed[0] == packed[1] == packed[2] != set()
