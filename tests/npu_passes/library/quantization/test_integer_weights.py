"""Weights that a model has as integers are read as they are."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from npu_passes import PassManager
from npu_passes.library.quantization.quantize_weights import QuantizeWeights
from npu_passes.testing import check_pass
from npu_runtime import IRExecutor
from tests.support.passes.cpu_cases import captured, ops
from tests.support.rows import each_row

LINEAR = "npu.quantized_linear"


class Integers(nn.Module):
    """A layer of integers and scales, in a dtype."""

    def __init__(
        self, function: Callable[[Any, Tensor], Tensor], dtype: torch.dtype, scales: int = 1
    ) -> None:
        super().__init__()
        weight = torch.randint(-127, 128, (24, 32), dtype=torch.int8)
        self.register_buffer("integers", weight)
        self.register_buffer("scales", torch.rand(24, scales).to(dtype) / 100)
        self.bias = nn.Parameter(torch.randn(24).to(dtype))
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self, x)


FORMS: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "scaled": lambda m, x: F.linear(x, m.integers.to(x.dtype) * m.scales, m.bias),
    "scales first": lambda m, x: F.linear(x, m.scales * m.integers.to(x.dtype)),
    "scaled afterwards": lambda m, x: F.linear(x, m.integers.to(x.dtype)) * m.scales[:, 0],
}


@pytest.mark.smoke
@each_row("dtype", [torch.float32, torch.bfloat16])
@each_row("form", list(FORMS))
def test_integers_stay_integers(form: str, dtype: torch.dtype) -> None:
    model, x = Integers(FORMS[form], dtype).eval(), torch.randn(2, 5, 32).to(dtype)
    graph = captured(model, x)

    assert check_pass(QuantizeWeights(), graph) == 1

    found = PassManager("quantize-weights,dead-code").run(graph).graph
    assert ops(found)[LINEAR] == 1
    assert not {"to.dtype", "linear"} & set(ops(found))
    executor = IRExecutor(found, model.state_dict(), backend="host")
    torch.testing.assert_close(executor(x), model(x).detach(), rtol=2e-2, atol=2e-2)


def test_activations_are_rounded_for_integers_of_the_model_too() -> None:
    model, x = Integers(FORMS["scaled"], torch.float32).eval(), torch.randn(5, 32)

    graph = PassManager([QuantizeWeights(activations="int8")]).run(captured(model, x)).graph

    assert ops(graph)["npu.dynamic_quantized_linear"] == 1
    host, aten = (IRExecutor(graph, model.state_dict(), backend=item) for item in ("host", "aten"))
    torch.testing.assert_close(host(x), aten(x), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(host(x), model(x).detach(), rtol=2e-2, atol=1e-1)


@each_row(
    "function",
    {
        "scales of columns": lambda m, x: F.linear(x, m.integers.to(x.dtype) * m.scales[0]),
        "computed scales": lambda m, x: F.linear(x, m.integers.to(x.dtype) * x[0, :24, None]),
        "other arithmetic": lambda m, x: F.linear(x, m.integers.to(x.dtype) + m.scales[:, :1]),
        "a vector": lambda m, x: F.linear(x[0], m.integers.to(x.dtype)),
        "integers of a call": lambda m, x: F.linear(x, (x[:2] > 0).to(torch.int8).to(x.dtype)),
    },
)
def test_other_weights_are_computed_as_before(function: Callable[[Any, Tensor], Tensor]) -> None:
    model = Integers(function, torch.float32, scales=32).eval()

    graph = PassManager("quantize-weights").run(captured(model, torch.randn(3, 32))).graph

    assert LINEAR not in ops(graph)
