"""Adapters for control-flow operators that call regions with other arguments than they were traced for.

Both differences are between torch.export and the operators of torch 2.13.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import torch

from npu_ir.core.node import OpNode, Value
from npu_ir.core.types import TensorType

if TYPE_CHECKING:
    from npu_ir.graph.graph import Graph

# A region as the operator calls it, with positional arguments.
Region: TypeAlias = "Callable[..., Any]"

_POSITION = TensorType((), torch.int32)


def adapt_regions(node: OpNode, regions: Mapping[str, Region]) -> list[Region]:
    """Return the regions of ``node`` in order, adapted to its operator."""
    adapted = _ADAPTED.get(node.op_type)
    if adapted is None:
        return list(regions.values())
    return [adapted(node.regions[argument], region) for argument, region in regions.items()]


def _adapt_flex_attention(graph: Graph, region: Region) -> Region:
    """Adapt a region to ``flex_attention``: traced for 32-bit positions, it gets 64-bit ones on the CPU."""

    def fit(value: Value, item: Any) -> Any:
        is_position = value.type == _POSITION and isinstance(item, torch.Tensor) and item.dtype is torch.int64
        return item.to(torch.int32) if is_position else item

    return lambda *args: region(*map(fit, graph.inputs, args))


def _adapt_associative_scan(graph: Graph, region: Region) -> Region:
    """Adapt a region to ``associative_scan``: traced for two slices, it gets stacks of slices."""
    count = 2 * len(graph.results[1])

    def run(*args: Any) -> Any:
        slices, additional = args[:count], args[count:]
        if slices[0].dim() == graph.inputs[0].tensor_type.rank:
            return region(*args)
        rows = [region(*row, *additional) for row in zip(*(item.unbind(0) for item in slices), strict=True)]
        if not rows:
            return [item[:0] for item in slices[: count // 2]]
        return [torch.stack(parts) for parts in zip(*rows, strict=True)]

    return run


_ADAPTED: Mapping[str, Callable[[Graph, Region], Region]] = {
    "higher_order.flex_attention": _adapt_flex_attention,
    "higher_order.associative_scan": _adapt_associative_scan,
}
