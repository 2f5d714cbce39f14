"""Chains of views as one view of the memory they all lie in.

Splitting, reshaping and transposing heads takes up to three calls per tensor in PyTorch; the last view is one
``as_strided`` of the tensor that was computed. Only where that tensor was seen to have the strides that the graph
states, and to begin where its memory begins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from npu_ir import OpNode, TensorType, Value
from npu_ir.ops.calls import Binding, Slot
from npu_runtime._torch import share_memory
from npu_runtime.lowering.aten_calls import ATEN, NodeStep
from npu_runtime.lowering.instruction import Returns, Step

_KERNEL = "torch._C.TensorBase.as_strided"
_META = torch.device("meta")


def merge_views(steps: Sequence[NodeStep], kept: set[Value]) -> list[NodeStep]:
    """Return steps in which chains of two views and more are one.

    Args:
        steps: Each node one step.
        kept: The values that must be there at the end.
    """
    places: dict[Value, _Place] = {}
    merged = []
    for item in steps:
        places.update(_places(item, places))
        merged.append(_merged(item, places))
    return _without_unread(merged, kept)


@dataclass(frozen=True, slots=True, eq=False)
class _Place:
    """Where a value lies.

    Attributes:
        root: The computed value in whose memory it lies.
        tensor: On ``meta``: its sizes, strides and offset.
        before: What it is a view of; None for a root.
        item: The view; None for a root.
    """

    root: Value
    tensor: torch.Tensor
    before: _Place | None = None
    item: NodeStep | None = None


def _places(item: NodeStep, known: Mapping[Value, _Place]) -> dict[Value, _Place]:
    """Return where the outputs of a step lie, as far as that is known."""
    seen, step = item.seen, item.step
    if seen is None:
        return {}
    if not any(seen.shares):
        certain = map(bool.__and__, seen.is_laid_out, seen.is_at_start)
        tensors = zip(step.outputs, certain, strict=True)
        return {
            value: _Place(value, _empty(value.tensor_type))
            for value, is_so in tensors
            if is_so and _is_dense(value)
        }
    before = known.get(step.inputs[0]) if _is_view(item) else None
    if before is None:
        return {}
    args, kwargs = step.binding.arguments([before.tensor], _META)
    # A tensor that stays on its device is a view of itself: on meta, too.
    result = step.function(*map(_on_meta, args), **{name: _on_meta(item) for name, item in kwargs.items()})
    views = [result] if step.returns is Returns.ONE else result
    found = zip(step.outputs, views, strict=True)
    return {
        value: _Place(before.root, view, before, item)
        for value, view in found
        if _is_plain(view, before, value)
    }


def _on_meta(item: Any) -> Any:
    return _META if isinstance(item, torch.device) else item


def _empty(type: TensorType) -> torch.Tensor:
    return torch.empty_strided(type.sizes, type.steps, dtype=type.dtype, device=_META)


def _is_dense(value: Value) -> bool:
    return isinstance(value.type, TensorType) and value.type.layout is torch.strided


def _is_plain(view: Any, before: _Place, value: Value) -> bool:
    """Whether a view shows the elements as they are, and is of the type that is stated; a number is no view."""
    return (
        isinstance(view, torch.Tensor)
        and share_memory(view, before.tensor)
        and view.dtype is before.tensor.dtype
        and not view.is_conj()
        and not view.is_neg()
        and TensorType.of(view) == value.type
    )


def _is_view(item: NodeStep) -> bool:
    """Whether a step looks at its only input in another way, and nothing else; what a backend runs is opaque."""
    return item.seen is not None and item.seen.is_view and len(item.step.inputs) == 1


def _merged(item: NodeStep, places: Mapping[Value, _Place]) -> NodeStep:
    """Return the last view of a chain as a view of its root; any other step as it is."""
    place = places.get(item.step.outputs[0]) if len(item.step.outputs) == 1 else None
    if place is None or place.before is None or place.before.before is None:
        return item
    view = place.tensor
    where = tuple(view.shape), tuple(view.stride()), view.storage_offset()
    step = Step(
        nodes=_nodes(place),
        backend=ATEN,
        kernel=_KERNEL,
        function=torch.Tensor.as_strided,
        binding=Binding((Slot(0), *where), {}),
        inputs=(place.root,),
        outputs=item.step.outputs,
        returns=Returns.ONE,
    )
    return NodeStep(step, item.seen)


def _nodes(place: _Place) -> tuple[OpNode, ...]:
    """Return the nodes of a chain of views, the first one first."""
    nodes: list[OpNode] = []
    while place.item is not None and place.before is not None:
        nodes.append(place.item.step.node)
        place = place.before
    return tuple(reversed(nodes))


def _without_unread(steps: Sequence[NodeStep], kept: set[Value]) -> list[NodeStep]:
    """Return the steps without the views that nothing reads any more."""
    needed = set(kept)
    rest: list[NodeStep] = []
    for item in reversed(steps):
        if _is_view(item) and needed.isdisjoint(item.step.outputs):
            continue
        needed.update(item.step.inputs)
        rest.append(item)
    return rest[::-1]
