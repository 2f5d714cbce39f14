"""Inputs that overlap in memory, in a model that mutates one of them.

Such a model is captured once more, with the inputs as views of one base tensor, at the offsets that they
have in their shared memory. The graph states these offsets, and accepts only inputs that overlap in the
same way.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from npu_ir._torch.pytree import tree_leaves, tree_map
from npu_ir._torch.tensors import is_wrapper
from npu_ir.core.node import Value
from npu_ir.core.storage import ranges_overlap, storage_id, storage_range
from npu_ir.core.structure import flatten_like
from npu_ir.errors import ConversionError
from npu_ir.graph.graph import Graph

# The keyword of an argument ("" for the positional ones), and the number of the leaf in it.
InputPosition: TypeAlias = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Overlap:
    """Inputs that share memory, by their position in the call."""

    numel: int  # the number of elements that they span together
    inputs: Mapping[InputPosition, torch.Tensor]
    first: int  # the offset of this span in their storage, in elements

    def views(self, base: torch.Tensor) -> dict[InputPosition, torch.Tensor]:
        """Return views of ``base`` at the offsets that the inputs have in their shared memory."""
        return {
            place: base.as_strided(item.shape, item.stride(), item.storage_offset() - self.first)
            for place, item in self.inputs.items()
        }


def find_overlaps(args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Overlap]:
    """Return the groups of inputs that overlap; none if each group is one tensor passed several times.

    Raises:
        ConversionError: The inputs of a group have several dtypes.
    """
    groups: list[dict[InputPosition, torch.Tensor]] = []
    for place, leaf in _leaves(args, kwargs):
        if isinstance(leaf, torch.Tensor) and leaf.layout is torch.strided and not is_wrapper(leaf):
            # Overlap is not transitive, groups are: one leaf may join several of them.
            touching = [
                group for group in groups if any(_is_overlapping(leaf, other) for other in group.values())
            ]
            groups = [group for group in groups if group not in touching]
            groups.append({key: item for group in touching for key, item in group.items()} | {place: leaf})
    if all(len({id(item) for item in group.values()}) == 1 for group in groups):
        return []
    return [_make_overlap(group) for group in groups if len(group) > 1]


def _leaves(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[tuple[InputPosition, Any]]:
    for name, tree in (("", tuple(args)), *kwargs.items()):
        for number, leaf in enumerate(tree_leaves(tree)):
            yield (name, number), leaf


def _is_overlapping(left: torch.Tensor, right: torch.Tensor) -> bool:
    return storage_id(left) == storage_id(right) and ranges_overlap(storage_range(left), storage_range(right))


def _make_overlap(group: dict[InputPosition, torch.Tensor]) -> Overlap:
    dtypes = {item.dtype for item in group.values()}
    if len(dtypes) > 1:
        raise ConversionError(
            f"inputs of {len(dtypes)} dtypes share memory, and the model changes one of them in place",
            fix="pass a copy (clone)",
        )
    ranges, size = [storage_range(item) for item in group.values()], dtypes.pop().itemsize
    first, end = min(first for first, _ in ranges), max(end for _, end in ranges)
    return Overlap((end - first) // size, group, first // size)


@contextlib.contextmanager
def run_on_views(model: torch.nn.Module, groups: Sequence[Overlap]) -> Iterator[None]:
    """Run ``forward`` on views of one tensor in place of overlapping inputs, and copy the views back."""
    if not groups:
        yield
        return
    forward, own = model.forward, vars(model).get("forward")

    @functools.wraps(forward)
    def on_views(*args: Any, **kwargs: Any) -> Any:
        inputs = dict(_leaves(args, kwargs))
        views: dict[InputPosition, torch.Tensor] = {}
        for item in groups:
            # Views of one base, created in forward: torch.export traces their aliasing.
            group_views = item.views(inputs[next(iter(item.inputs))].new_zeros(item.numel))
            for place, view in group_views.items():
                view.copy_(inputs[place])
            views |= group_views
        positional, named = (
            _replace_leaves(name, tree, views) for name, tree in (("", args), (None, kwargs))
        )
        result = forward(*positional, **named)
        for place, view in views.items():
            inputs[place].copy_(view)
        return result

    model.forward = on_views
    try:
        yield
    finally:
        del model.forward
        if own is not None:  # an instance attribute that shadowed the method of the class
            model.forward = own


def _replace_leaves(name: str | None, tree: Any, views: Mapping[InputPosition, torch.Tensor]) -> Any:
    """Return arguments with views in place of inputs; without a name, the keyword arguments."""
    if name is None:
        return {key: _replace_leaves(key, item, views) for key, item in tree.items()}
    leaves = iter(range(len(tree_leaves(tree))))

    def view(leaf: Any) -> Any:
        return views.get((name, next(leaves)), leaf)

    return tree_map(view, tree)


def declare_overlaps(
    graph: Graph, args: tuple[Any, ...], kwargs: dict[str, Any], groups: Sequence[Overlap]
) -> None:
    """Declare the overlaps of inputs in ``graph``."""
    structure, leaves = graph.call
    positional, named = structure.children
    tensors = flatten_like(args, positional, "args") + flatten_like(kwargs, named, "kwargs")
    for overlap in groups:
        members = {id(item) for item in overlap.inputs.values()}
        inputs = [
            (leaf, item)
            for leaf, item in zip(leaves, tensors, strict=True)
            if isinstance(leaf, Value) and id(item) in members
        ]
        first, tensor = inputs[0]
        for value, item in inputs[1:]:
            graph.set_overlap(value, first, item.storage_offset() - tensor.storage_offset())
