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
from npu_runtime.backends.partition import ATEN
from npu_runtime.lowering.instruction import Instruction, Returns

_KERNEL = "torch._C.TensorBase.as_strided"
_META = torch.device("meta")


def fuse_views(instructions: Sequence[Instruction], kept: set[Value]) -> list[Instruction]:
    """Return instructions with each chain of two or more views fused into one.

    Args:
        instructions: One instruction per node, or per partition.
        kept: The values that are needed after the last instruction.
    """
    chains: dict[Value, _ViewChain] = {}
    fused = []
    # Forward: the chain of an input is known before its views are reached.
    for instruction in instructions:
        chains.update(_extend_chains(instruction, chains))
        fused.append(_fuse(instruction, chains))
    return _remove_unread(fused, kept)


@dataclass(frozen=True, slots=True, eq=False)
class _ViewChain:
    """The position of a value in the memory of a root: a linked list of views, the last one first.

    Attributes:
        root: The computed value in whose memory it resides.
        tensor: A ``meta`` tensor with its sizes, strides and offset.
        base: The position of the value that it is a view of; None for a root.
        view: The instruction that creates the view; None for a root.
    """

    root: Value
    tensor: torch.Tensor
    base: _ViewChain | None = None
    view: Instruction | None = None


def _extend_chains(instruction: Instruction, chains: Mapping[Value, _ViewChain]) -> dict[Value, _ViewChain]:
    """Return the positions of the outputs of an instruction, where they are known."""
    traits = instruction.traits
    if traits is None:
        return {}
    # A root: an instruction with fresh outputs. `as_strided` on it is valid only in the stated layout.
    if not any(traits.shares):
        certain = map(bool.__and__, traits.has_stated_strides, traits.starts_storage)
        return {
            value: _ViewChain(value, _meta_tensor(value.tensor_type))
            for value, is_so in zip(instruction.outputs, certain, strict=True)
            if is_so and _is_strided(value)
        }
    base = chains.get(instruction.inputs[0]) if _is_view(instruction) else None
    if base is None:
        return {}
    args, kwargs = instruction.binding.arguments([base.tensor], _META)
    # ``to(device)`` on the same device returns its input: with meta as the argument, here too.
    result = instruction.function(
        *map(_to_meta, args), **{name: _to_meta(item) for name, item in kwargs.items()}
    )
    views = [result] if instruction.returns is Returns.ONE else result
    return {
        value: _ViewChain(base.root, view, base, instruction)
        for value, view in zip(instruction.outputs, views, strict=True)
        if _is_exact_view(view, base, value)
    }


def _to_meta(item: Any) -> Any:
    return _META if isinstance(item, torch.device) else item


def _meta_tensor(type: TensorType) -> torch.Tensor:
    return torch.empty_strided(type.static_shape, type.static_strides, dtype=type.dtype, device=_META)


def _is_strided(value: Value) -> bool:
    return isinstance(value.type, TensorType) and value.type.layout is torch.strided


def _is_exact_view(view: Any, base: _ViewChain, value: Value) -> bool:
    """Return whether a result is a view of the stated type, without conversion or lazy conj/neg bits."""
    return (
        isinstance(view, torch.Tensor)
        and shares_storage(view, base.tensor)
        and view.dtype is base.tensor.dtype
        and not view.is_conj()
        and not view.is_neg()
        and TensorType.of(view) == value.type
    )


def _is_view(instruction: Instruction) -> bool:
    """Return whether an instruction is a view of its only input; a partition is opaque and does not count."""
    traits = instruction.traits
    return traits is not None and traits.is_view and len(instruction.inputs) == 1


def _fuse(instruction: Instruction, chains: Mapping[Value, _ViewChain]) -> Instruction:
    """Return the last view of a chain as one view of its root; any other instruction unchanged."""
    chain = chains.get(instruction.outputs[0]) if len(instruction.outputs) == 1 else None
    # A single view stays as it is: `as_strided` would not be faster.
    if chain is None or chain.base is None or chain.base.base is None:
        return instruction
    view = chain.tensor
    layout = tuple(view.shape), tuple(view.stride()), view.storage_offset()
    # The traits still hold: of one input, which the output shares memory with.
    return Instruction(
        nodes=_chain_nodes(chain),
        backend=ATEN,
        kernel=_KERNEL,
        function=torch.Tensor.as_strided,
        binding=Binding((Slot(0), *layout), {}),
        inputs=(chain.root,),
        outputs=instruction.outputs,
        returns=Returns.ONE,
        traits=instruction.traits,
    )


def _chain_nodes(chain: _ViewChain) -> tuple[OpNode, ...]:
    """Return the nodes of a chain of views, in order."""
    nodes: list[OpNode] = []
    while chain.view is not None and chain.base is not None:
        nodes.append(chain.view.node)
        chain = chain.base
    return tuple(reversed(nodes))


def _remove_unread(instructions: Sequence[Instruction], kept: set[Value]) -> list[Instruction]:
    """Return the instructions without views that have no readers."""
    needed = set(kept)
    rest: list[Instruction] = []
    # In reverse, the readers of a view are removed before it.
    for instruction in reversed(instructions):
        if _is_view(instruction) and needed.isdisjoint(instruction.outputs):
            continue
        needed.update(instruction.inputs)
        rest.append(instruction)
    return rest[::-1]
