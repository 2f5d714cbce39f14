"""Shared by the tests of the CPU passes: models of sufficient size, and comparison with eager."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from npu_ir import Graph, Interpreter, extract_ir
from npu_ir.core.structure import flatten
from npu_passes import PassManager
from npu_passes.core.journal import Refusal

CPU_PASSES = "constant-folding,channels-last,winograd,pack-convolution,pack-linear"


# Functions behind a product, and what oneDNN calls those that it computes with it.
ACTIVATIONS: list[tuple[Callable[[Tensor], Tensor], str]] = [
    (lambda y: y, "none"),
    (F.relu, "relu"),
    (F.relu6, "hardtanh"),
    (lambda y: F.hardtanh(y, -0.5, 0.25), "hardtanh"),
    (lambda y: F.leaky_relu(y, 0.2), "leaky_relu"),
    (F.gelu, "gelu"),
    (lambda y: F.gelu(y, approximate="tanh"), "gelu"),
    (F.silu, "swish"),
    (F.hardswish, "hardswish"),
    (torch.sigmoid, "sigmoid"),
    (torch.tanh, "tanh"),
]


class Residual(nn.Module):
    """Two convolutions, and the input added to what they make."""

    def __init__(self, channels: int, kernel: int = 3) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, kernel, padding=kernel // 2)
        self.second = nn.Conv2d(channels, channels, kernel, padding=kernel // 2)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.second(torch.relu(self.first(x))) + x)


def image(channels: int, size: int, batch: int = 1) -> Tensor:
    return torch.randn(batch, channels, size, size)


def captured(model: nn.Module, *args: Any) -> Graph:
    return extract_ir(model.eval(), args)


def optimized(model: nn.Module, *args: Any, passes: str = CPU_PASSES) -> Graph:
    return PassManager(passes).run(captured(model, *args)).graph


def last(x: Tensor) -> Tensor:
    return x.to(memory_format=torch.channels_last)


def refusals(model: nn.Module, *args: Any, passes: str) -> list[Refusal]:
    return list(PassManager(passes).run(captured(model, *args)).journal.refusals)


def ops(graph: Graph) -> Counter[str]:
    """Return how often each op is in the body, by a short name."""
    return Counter(node.op_type.removeprefix("aten.").removesuffix(".default") for node in graph.body)


def assert_computes(
    graph: Graph,
    model: nn.Module,
    *args: Any,
    weights: Mapping[str, Tensor] | None = None,
    rtol: float = 1e-5,
) -> None:
    """Compare dtype, shape, values and relevant strides with eager; ``rtol`` is of the largest magnitude."""
    with torch.no_grad():
        wanted = flatten(model.eval()(*args))[0]

    found, _ = Interpreter(graph, model.state_dict() if weights is None else weights).run_flat(args)

    assert len(found) == len(wanted)
    for left, right in zip(found, wanted, strict=True):
        assert (left.dtype, left.shape, _steps(left)) == (right.dtype, right.shape, _steps(right))
        assert float((left - right).abs().max()) <= rtol * max(float(right.abs().max()), 1e-30)


def _steps(tensor: Tensor) -> list[int]:
    """Return the strides in dimensions of more than one element."""
    return [step for size, step in zip(tensor.shape, tensor.stride(), strict=True) if size > 1]
