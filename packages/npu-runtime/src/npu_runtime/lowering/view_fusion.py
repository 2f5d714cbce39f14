"""View fusion: a chain of views becomes one ``as_strided`` of the tensor at its root.

Splitting, reshaping and transposing attention heads takes up to three calls per tensor in PyTorch. The
views are evaluated on ``meta`` tensors, which yields the final sizes, strides and offset without knowledge
of any op. That is valid only if the root is known to have the strides that the graph states, and to start
at the beginning of its memory: ``as_strided`` takes an absolute storage offset. Intermediate views without
other readers are removed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from npu_ir import OpNode, TensorType, Value
from npu_ir.core.storage import shares_storage
from npu_ir.ops.calls import Binding, Slot
from npu_runtime.lowering.aten_calls import ATEN, ObservedInstruction
from npu_runtime.lowering.instruction import Instruction, Returns

_KERNEL = "torch._C.TensorBase.as_strided"
_META = torch.device("meta")


def fuse_views(steps: Sequence[ObservedInstruction], kept: set[Value]) -> list[ObservedInstruction]:
    """Return instructions with each chain of two or more views fused into one.

    Args:
        steps: One instruction per node, or per partition.
        kept: The values that are needed after the last instruction.
    """
    places: dict[Value, _ViewChain] = {}
    merged = []
    for item in steps:
        places.update(_extend_chains(item, places))
        merged.append(_fuse(item, places))
    return _remove_unread(merged, kept)


@dataclass(frozen=True, slots=True, eq=False)
class _ViewChain:
    """The position of a value in the memory of a root.

    Attributes:
        root: The computed value in whose memory it resides.
        tensor: A ``meta`` tensor with its sizes, strides and offset.
        before: The position of the value that it is a view of; None for a root.
        item: The instruction that creates the view; None for a root.
    """

    root: Value
    tensor: torch.Tensor
    base: _ViewChain | None = None
    item: ObservedInstruction | None = None


def _extend_chains(item: ObservedInstruction, known: Mapping[Value, _ViewChain]) -> dict[Value, _ViewChain]:
    """Return the positions of the outputs of an instruction, where they are known."""
    seen, step = item.traits, item.instruction
    if seen is None:
        return {}
    # A root: an instruction with fresh outputs. `as_strided` on it is valid only in the stated layout.
    if not any(seen.shares):
        certain = map(bool.__and__, seen.has_stated_strides, seen.starts_storage)
        tensors = zip(step.outputs, certain, strict=True)
        return {
            value: _ViewChain(value, _meta_tensor(value.tensor_type))
            for value, is_so in tensors
            if is_so and _is_strided(value)
        }
    before = known.get(step.inputs[0]) if _is_view(item) else None
    if before is None:
        return {}
    args, kwargs = step.binding.arguments([before.tensor], _META)
    # ``to(device)`` on the same device returns its input: with meta as the argument, here too.
    result = step.function(*map(_to_meta, args), **{name: _to_meta(item) for name, item in kwargs.items()})
    views = [result] if step.returns is Returns.ONE else result
    return {
        value: _ViewChain(before.root, view, before, item)
        for value, view in zip(step.outputs, views, strict=True)
        if _is_exact_view(view, before, value)
    }


def _to_meta(item: Any) -> Any:
    return _META if isinstance(item, torch.device) else item


def _meta_tensor(type: TensorType) -> torch.Tensor:
    return torch.empty_strided(type.static_shape, type.static_strides, dtype=type.dtype, device=_META)


def _is_strided(value: Value) -> bool:
    return isinstance(value.type, TensorType) and value.type.layout is torch.strided


def _is_exact_view(view: Any, before: _ViewChain, value: Value) -> bool:
    """Return whether a result is a view of the stated type, without conversion or lazy conj/neg bits."""
    return (
        isinstance(view, torch.Tensor)
        and shares_storage(view, before.tensor)
        and view.dtype is before.tensor.dtype
        and not view.is_conj()
        and not view.is_neg()
        and TensorType.of(view) == value.type
    )


def _is_view(item: ObservedInstruction) -> bool:
    """Return whether an instruction is a view of its only input; a partition is opaque and does not count."""
    return item.traits is not None and item.traits.is_view and len(item.instruction.inputs) == 1


def _fuse(item: ObservedInstruction, places: Mapping[Value, _ViewChain]) -> ObservedInstruction:
    """Return the last view of a chain as one view of its root; any other instruction unchanged."""
    place = places.get(item.instruction.outputs[0]) if len(item.instruction.outputs) == 1 else None
    # A single view stays as it is: `as_strided` would not be faster.
    if place is None or place.base is None or place.base.base is None:
        return item
    view = place.tensor
    where = tuple(view.shape), tuple(view.stride()), view.storage_offset()
    step = Instruction(
        nodes=_chain_nodes(place),
        backend=ATEN,
        kernel=_KERNEL,
        function=torch.Tensor.as_strided,
        binding=Binding((Slot(0), *where), {}),
        inputs=(place.root,),
        outputs=item.instruction.outputs,
        returns=Returns.ONE,
    )
    return ObservedInstruction(step, item.traits)


def _chain_nodes(place: _ViewChain) -> tuple[OpNode, ...]:
    """Return the nodes of a chain of views, in order."""
    nodes: list[OpNode] = []
    while place.item is not None and place.base is not None:
        nodes.append(place.item.instruction.node)
        place = place.base
    return tuple(reversed(nodes))


def _remove_unread(steps: Sequence[ObservedInstruction], kept: set[Value]) -> list[ObservedInstruction]:
    """Return the instructions without views that have no readers."""
    needed = set(kept)
    rest: list[ObservedInstruction] = []
    # In reverse, the readers of a view are removed before it.
    for item in reversed(steps):
        if _is_view(item) and needed.isdisjoint(item.instruction.outputs):
            continue
        needed.update(item.instruction.inputs)
        rest.append(item)
    return rest[::-1]
