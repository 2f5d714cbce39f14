"""Inputs for contract tests, and checks of outputs and memory."""

from __future__ import annotations

import enum
import itertools
from collections.abc import Sequence
from typing import Any

import torch

from npu_ir import Graph, TensorType
from npu_ir.core.storage import ByteRange, address_range, element_span, ranges_overlap
from npu_ir.graph.binding import has_strides
from npu_ir.ops.execution import describe, is_of_type
from npu_ir.verify.comparison import compare
from npu_runtime.probing.storage import is_bitwise_equal

_NUMBERS = {"int": 2, "float": 1.5, "bool": True, "none": None}


class Content(str, enum.Enum):
    """The content of floating-point inputs; integers are 0 and 1, which are valid indices."""

    ORDINARY = "ordinary numbers"
    ZEROS = "zeros of both signs"
    INFINITIES = "infinities"
    NANS = "NaN"


_SPECIAL = {
    Content.ZEROS: (0.0, -0.0),
    Content.INFINITIES: (float("inf"), float("-inf")),
    Content.NANS: (float("nan"),),
}


def make_inputs(
    graph: Graph,
    device: torch.device,
    *,
    content: Content = Content.ORDINARY,
    seed: int = 0,
    offset: int = 0,
) -> list[Any]:
    """Return inputs of the types stated by ``graph``, deterministic for a seed.

    Args:
        graph: A graph without symbols.
        device: The device of tensors.
        content: The content of floating-point tensors.
        seed: The seed of the random numbers.
        offset: The storage offset of tensors, in elements; if not 0, axes of size 1 have odd strides, too.
    """
    generator = torch.Generator().manual_seed(seed)
    return [
        _tensor(value.type, device, content, generator, offset)
        if isinstance(value.type, TensorType)
        else _NUMBERS[value.type.kind]
        for value in graph.inputs
    ]


def _tensor(
    type: TensorType, device: torch.device, content: Content, generator: torch.Generator, offset: int
) -> torch.Tensor:
    steps = [
        13 if offset and size == 1 else step
        for size, step in zip(type.static_shape, type.static_strides, strict=True)
    ]
    count = element_span(type.static_shape, steps)
    row = _random_values(count + 2 * offset, type.dtype, content, generator)
    return row.to(device).as_strided(type.static_shape, steps, offset)


def _random_values(
    count: int, dtype: torch.dtype, content: Content, generator: torch.Generator
) -> torch.Tensor:
    if not (dtype.is_floating_point or dtype.is_complex):
        high = 1 if content is Content.ZEROS else 2
        return torch.randint(high, (count,), generator=generator).to(dtype)
    wide = torch.complex64 if dtype.is_complex else torch.float32
    row = torch.randn(count, dtype=wide, generator=generator)
    special = _SPECIAL.get(content, ())
    step = (
        1 if content is Content.ZEROS else 7
    )  # ordinary numbers in between, so that not all results are NaN
    for start, number in zip(itertools.count(0, step), special, strict=False):
        row[start :: step * len(special)] = number
    return row.to(dtype)


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
