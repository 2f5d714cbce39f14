"""What a step of a program works on: bytes, as its calls show, and floating-point operations."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from npu_ir import OpNode
from npu_passes.flops import FlopCounter
from npu_runtime.steps import Step

# A product with a packed weight: PyTorch has no formulas for them.
_PACKED_PRODUCTS = ("mkldnn._linear_pointwise.", "mkldnn._convolution_pointwise.")


@dataclass(frozen=True, slots=True)
class Traffic:
    """The bytes of the tensors that one call reads and writes; none of a view, which touches no element."""

    read: int
    written: int


class TrafficMeter:
    """Sees the calls of an instrumented executor.

    Args:
        steps: What it calls, in order.

    Attributes:
        seen: The traffic of each call, in order.
    """

    def __init__(self, steps: Sequence[Step]) -> None:
        self._steps = steps
        self.seen: list[Traffic] = []

    def wrap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that does the same, and is seen."""

        def call(*args: Any, **kwargs: Any) -> Any:
            given = list(_tensors((args, list(kwargs.values()))))
            result = function(*args, **kwargs)
            overwrites = self._steps[len(self.seen)].overwrites is not None
            self.seen.append(_traffic(given, list(_tensors(result)), overwrites=overwrites))
            return result

        return call


def _traffic(given: Sequence[torch.Tensor], made: Sequence[torch.Tensor], *, overwrites: bool) -> Traffic:
    memory = {_memory(item) for item in given} - {None}
    own = [item for item in made if overwrites or _memory(item) not in memory]
    if made and not own:
        return Traffic(0, 0)
    distinct = {id(item): item for item in given}.values()
    return Traffic(sum(map(_size, distinct)), sum(map(_size, own)))


def _tensors(item: Any) -> Iterator[torch.Tensor]:
    if isinstance(item, torch.Tensor):
        yield item
    elif isinstance(item, (tuple, list)):
        for part in item:
            yield from _tensors(part)


def _memory(item: torch.Tensor) -> int | None:
    return item.untyped_storage()._cdata if item.layout is torch.strided else None


def _size(item: torch.Tensor) -> int:
    return item.numel() * item.element_size()


def step_flops(step: Step, count: FlopCounter) -> int | None:
    """Return the floating-point operations of a step; None where those of a node are not known."""
    known = [node_flops(node, count) for node in step.nodes]
    return None if None in known else sum(item for item in known if item is not None)


def node_flops(node: OpNode, count: FlopCounter) -> int | None:
    """Return the floating-point operations of a node, as `FlopCounter` does, and of products with packed weights."""
    if not node.op_type.startswith(_PACKED_PRODUCTS) or node.operands is None:
        return count(node)
    weight, output = node.inputs[node.operands.index("W")].tensor_type, node.outputs[0].tensor_type
    if weight.symbols or output.symbols:
        return None
    return 2 * output.numel * math.prod(weight.sizes[1:])
