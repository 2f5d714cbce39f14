"""Chains of views as one view of the memory they all lie in.

Splitting, reshaping and transposing heads takes up to three calls per tensor in PyTorch; the last view is one
``as_strided`` of the tensor that was computed. Only where that tensor was seen to have the strides that the graph
states, and to begin where its memory begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from npu_ir import TensorType, Value
from npu_ir.ops.calls import Binding, Slot
from npu_runtime.node_steps import ATEN, NodeStep
from npu_runtime.steps import Returns, Step

_KERNEL = "torch._C.TensorBase.as_strided"


def merge_views(steps: Sequence[NodeStep], kept: set[Value]) -> list[NodeStep]:
    """Return steps in which chains of two views and more are one.

    Args:
        steps: Each node one step.
        kept: The values that must be there at the end.
    """
    chains = _chains(steps)
    merged = [_merged(item, chains) for item in steps]
    return _without_unread(merged, kept)


def _chains(steps: Sequence[NodeStep]) -> dict[Value, tuple[Value, list[NodeStep]]]:
    """Return for each view of known place the computed value it lies in, and the views in between."""
    chains: dict[Value, tuple[Value, list[NodeStep]]] = {}
    for item in steps:
        if item.seen is None:
            continue
        if not any(item.seen.shares):
            for index, value in enumerate(item.step.outputs):
                if item.seen.is_laid_out[index] and item.seen.is_at_start[index]:
                    chains[value] = (value, [])
        elif _is_view(item) and item.step.inputs[0] in chains:
            root, views = chains[item.step.inputs[0]]
            same_elements = [value for value in item.step.outputs if _has_dtype_of(value, root)]
            chains.update({value: (root, [*views, item]) for value in same_elements})
    return chains


def _has_dtype_of(value: Value, root: Value) -> bool:
    types = value.type, root.type
    return (
        all(isinstance(type, TensorType) for type in types)
        and value.tensor_type.dtype == root.tensor_type.dtype
    )


def _is_view(item: NodeStep) -> bool:
    """Whether a step looks at its only input in another way, and nothing else."""
    seen = item.seen
    return seen is not None and len(item.step.inputs) == 1 and all(0 in shared for shared in seen.shares)


def _merged(item: NodeStep, chains: dict[Value, tuple[Value, list[NodeStep]]]) -> NodeStep:
    """Return the last view of a chain as a view of its root; any other step as it is."""
    if not _is_view(item) or len(item.step.outputs) != 1:
        return item
    value = item.step.outputs[0]
    root, views = chains.get(value, (value, []))
    place = _place(root, value, views) if len(views) > 1 else None
    if place is None:
        return item
    size, stride, offset = place
    step = Step(
        nodes=tuple(view.step.node for view in views),
        backend=ATEN,
        kernel=_KERNEL,
        function=torch.Tensor.as_strided,
        binding=Binding((Slot(0), size, stride, offset), {}),
        inputs=(root,),
        outputs=(value,),
        returns=Returns.ONE,
    )
    return NodeStep(step, item.seen)


def _place(root: Value, value: Value, views: Sequence[NodeStep]) -> tuple[Any, Any, int] | None:
    """Return sizes, strides and offset of a view in the memory of its root; None where they are not as stated."""
    type = root.type
    assert isinstance(type, TensorType)
    tensors: dict[Value, Any] = {
        root: torch.empty_strided(type.sizes, type.steps, dtype=type.dtype, device="meta")
    }
    for view in views:
        step = view.step
        args, kwargs = step.binding.arguments([tensors[step.inputs[0]]], torch.device("meta"))
        result = step.function(*args, **kwargs)
        tensors.update(zip(step.outputs, [result] if step.returns is Returns.ONE else result, strict=True))
    last = tensors[value]
    if TensorType.of(last) != value.type or last.is_conj() or last.is_neg():
        return None
    return tuple(last.shape), tuple(last.stride()), last.storage_offset()


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
