"""Records of call traits: plain data, from which the same traits are made without another trial run.

Callables are recorded by name, out-variants by their place among the candidates of the op: both are looked
up again, so a record never contains code. A record holds for the versions of PyTorch and of this package,
and for the kernels of the machine on which the traits were observed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from npu_ir import OpNode
from npu_ir.ops.calls import Binding
from npu_ir.ops.effects import is_random
from npu_ir.ops.schema import Op
from npu_runtime._torch.fast_calls import fast_callables
from npu_runtime._torch.ops import OpOverload
from npu_runtime.probing.call_traits import CallTraits
from npu_runtime.probing.out_variants import ObservedCall, OutVariant, list_candidates

Record = Mapping[str, Any]


def record_traits(
    traits: CallTraits, node: OpNode, op: Op, binding: Binding, device: torch.device
) -> Record | None:
    """Return the record of the call traits of a node; None if they cannot be looked up again."""
    candidates = _candidates(node, op, binding, device) if traits.out_variants else []
    variants = [_find(item, candidates) for item in traits.out_variants]
    if traits.in_place is not None or None in variants or traits.kernel not in _callables(node, op):
        return None
    return {
        "kernel": traits.kernel,
        "shares": [sorted(item) for item in traits.shares],
        "has_stated_strides": list(traits.has_stated_strides),
        "starts_storage": list(traits.starts_storage),
        "is_certain": traits.is_certain,
        "out_variants": variants,
    }


def restore_traits(
    record: Record, node: OpNode, op: Op, binding: Binding, device: torch.device
) -> CallTraits:
    """Return the call traits of a record.

    Raises:
        KeyError: The record names a callable that does not exist.
        IndexError: Likewise an out-variant.
    """
    candidates = _candidates(node, op, binding, device) if record["out_variants"] else []
    return CallTraits(
        kernel=record["kernel"],
        function=_callables(node, op)[record["kernel"]],
        in_place=None,
        shares=tuple(map(frozenset, record["shares"])),
        has_stated_strides=tuple(record["has_stated_strides"]),
        starts_storage=tuple(record["starts_storage"]),
        out_variants=tuple(
            candidates[index].with_reusable_inputs(reusable) for index, reusable in record["out_variants"]
        ),
        is_certain=record["is_certain"],
    )


def _callables(node: OpNode, op: Op) -> dict[str, Any]:
    """Return the callables that may run a node, by name, as `OpProbe` chooses from."""
    if not isinstance(op, OpOverload):
        return {node.op_type: op}
    return {f"torch.ops.{op}": op._op, **dict(fast_callables(op))}


def _candidates(node: OpNode, op: Op, binding: Binding, device: torch.device) -> list[OutVariant]:
    if not isinstance(op, OpOverload):
        return []
    nothing = [None] * len(node.inputs)
    call = ObservedCall(op, binding, nothing, [None] * len(node.outputs), device, is_random(node))
    return list(list_candidates(call))


def _find(wanted: OutVariant, candidates: Sequence[OutVariant]) -> list[Any] | None:
    """Return the place of an out-variant among the candidates, with its reusable inputs."""
    plain = wanted.with_reusable_inputs(())
    index = next((index for index, item in enumerate(candidates) if item == plain), None)
    return None if index is None else [index, sorted(wanted.reusable_inputs)]
