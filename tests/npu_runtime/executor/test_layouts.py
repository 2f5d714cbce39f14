"""Memory layouts: call traits observed at compile time must hold in every call, or are not used."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from npu_ir import ExecutionError, extract_ir
from npu_runtime import IRExecutor
from tests.support.corpus.case import Function


def test_a_part_of_a_tensor_is_not_overwritten_to_be_returned() -> None:
    def run(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(torch.exp(x)[2:])

    x = torch.randn(8, 3)
    result = IRExecutor(extract_ir(Function(run), (x,)), {}, passes=None)(x)

    assert torch.equal(result, run(x))
    assert result.untyped_storage().nbytes() == result.nbytes


def causal(x: torch.Tensor) -> torch.Tensor:
    q, k, v = (x * 1.5).view(2, 5, 3, 2, 4).permute(2, 0, 3, 1, 4).unbind(0)
    mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return mixed.transpose(1, 2).reshape(2, 5, 8)


def test_what_the_process_sets_after_compilation_permutes_nothing() -> None:
    x = torch.randn(2, 5, 24)
    executor = IRExecutor(extract_ir(Function(causal), (x,)), {}, passes="default")
    attention = next(
        instruction for instruction in executor.instructions if "attention" in instruction.kernel
    )
    assert any(
        instruction.inputs == attention.outputs and "as_strided" in instruction.kernel
        for instruction in executor.instructions
    )

    with sdpa_kernel(SDPBackend.MATH):
        result, expected = executor(x), causal(x)

    torch.testing.assert_close(result, expected)


class Conjugated(nn.Module):
    def __init__(self, weight: torch.Tensor) -> None:
        super().__init__()
        self.register_buffer("w", weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.w.resolve_conj() * 2 + x


def gray(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return F.conv2d(x, weight).flatten(2).transpose(1, 2)


@pytest.mark.parametrize("passes", [None, "default", "cpu"])
def test_strides_of_axes_of_size_1_permute_nothing(passes: str | None) -> None:
    x, weight = torch.randn(2, 1, 6, 6), torch.randn(8, 1, 3, 3)
    executor = IRExecutor(extract_ir(Function(gray), (x, weight)), passes=passes)

    torch.testing.assert_close(executor(x.to(memory_format=torch.channels_last), weight), gray(x, weight))


def test_a_weight_is_not_overwritten_after_one_that_was_conjugated_lazily() -> None:
    weight, x = torch.randn(3, dtype=torch.complex64), torch.randn(3, dtype=torch.complex64)
    graph = extract_ir(Conjugated(weight), (x,))
    executor = IRExecutor(graph, {"w": weight.conj()}, passes=None)
    other = torch.randn(3, dtype=torch.complex64)
    kept = other.clone()

    assert torch.equal(executor(x), Conjugated(weight.conj())(x))
    executor.load_state_dict({"w": other})

    assert torch.equal(executor(x), Conjugated(kept)(x))
    assert torch.equal(other, kept)


def test_a_size_that_depends_on_data_is_checked_in_every_call() -> None:
    graph = extract_ir(Function(lambda x: torch.nonzero(x)), (torch.ones(4),))
    fixed = graph.specialize(dict.fromkeys(graph.symbols, 4))
    executor = IRExecutor(fixed, {}, passes=None)

    assert torch.equal(executor(torch.ones(4)), torch.nonzero(torch.ones(4)))
    with pytest.raises(ExecutionError, match=r"aten.nonzero.default returned i64\[2, 1\]"):
        executor(torch.tensor([1.0, 0.0, 1.0, 0.0]))


def test_weights_in_channels_last_permute_nothing() -> None:
    model, x = nn.Sequential(nn.Conv2d(4, 8, 1), nn.Flatten(2)), torch.randn(2, 4, 6, 6)
    executor = IRExecutor(extract_ir(model, (x,)), model.state_dict(), passes=None)

    executor.load_state_dict(model.to(memory_format=torch.channels_last).state_dict())

    torch.testing.assert_close(executor(x), model(x))
