"""Inputs of graphs for contract tests, and checks of outputs and memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from npu_ir import Graph
from npu_ir.core.storage import ByteRange, address_range, ranges_overlap
from npu_ir.graph.binding import has_strides
from npu_ir.ops.execution import describe, is_of_type
from npu_ir.testing import data
from npu_ir.verify.comparison import compare
from npu_runtime.probing.storage import is_bitwise_equal


def make_inputs(graph: Graph, device: torch.device, **how: Any) -> list[Any]:
    """Return inputs of the types stated by ``graph``, as `npu_ir.testing.data.make_inputs` does."""
    return data.make_inputs([value.type for value in graph.inputs], device, **how)


def output_problem(
    graph: Graph,
    outputs: Any,
    expected: Sequence[Any],
    device: torch.device,
    tolerance: tuple[float | None, float | None] = (None, None),
) -> str | None:
    """Return the first problem of a backend's outputs for ``graph``; None if there is none."""
    if not isinstance(outputs, Sequence) or len(outputs) != len(graph.outputs):
        count = len(outputs) if isinstance(outputs, Sequence) else f"a {type(outputs).__name__} of"
        return f"{count} outputs, the graph has {len(graph.outputs)}"
    for value, item, wanted in zip(graph.outputs, outputs, expected, strict=True):
        problem = type_problem(item, value.type, device)
        if problem is not None:
            return f"%{value.name} {problem}"
        host = item.cpu() if isinstance(item, torch.Tensor) else item
        comparison = compare(value.name, host, wanted, *tolerance)
        if not comparison.ok:
            return f"%{value.name}: {comparison.problem}"
    return None


def type_problem(item: Any, type: Any, device: torch.device) -> str | None:
    """Return the difference of an item from its type, strides and device; None if there is none."""
    if not is_of_type(item, type):
        return f"is {describe(item)}, the graph states {type}"
    if not isinstance(item, torch.Tensor):
        return None
    if item.device != device:
        return f"is on {item.device}, not on {device}"
    if not has_strides(item, type):
        return f"has strides {list(item.stride())}, the graph states {list(type.static_strides)}"
    return None


def storage_bytes(items: Sequence[Any]) -> list[Any]:
    """Return copies of the whole storages of tensors, as bytes; numbers unchanged."""
    return [_storage(item).clone() if isinstance(item, torch.Tensor) else item for item in items]


def has_same_bytes(left: Sequence[Any], right: Sequence[Any]) -> bool:
    """Return whether two results of `storage_bytes` are equal."""
    return len(left) == len(right) and all(map(is_bitwise_equal, left, right))


def invert_bytes(items: Sequence[Any]) -> None:
    """Invert all bytes in the storages of tensors."""
    for item in items:
        if isinstance(item, torch.Tensor):
            _storage(item).bitwise_not_()


def _storage(item: torch.Tensor) -> torch.Tensor:
    return torch.empty(0, dtype=torch.uint8, device=item.device).set_(item.detach().untyped_storage())


def shared_pairs(inputs: Sequence[Any], outputs: Sequence[Any]) -> set[tuple[int, str, int]]:
    """Return the outputs that share memory with inputs or earlier outputs: (index, kind, other index)."""
    input_ranges = [_memory(item) for item in inputs]
    output_ranges = [_memory(item) for item in outputs]
    pairs = set()
    for index, own in enumerate(output_ranges):
        pairs |= {
            (index, "input", other) for other, item in enumerate(input_ranges) if ranges_overlap(own, item)
        }
        pairs |= {
            (index, "output", other) for other in range(index) if ranges_overlap(own, output_ranges[other])
        }
    return pairs


def _memory(item: Any) -> ByteRange:
    return address_range(item) if isinstance(item, torch.Tensor) else (0, 0)
