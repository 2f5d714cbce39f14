"""Kernel selection by the native registry; it needs no device."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

from npu_cuda import _C, attrs, errors
from npu_cuda.backend.rules import lower_node
from npu_cuda.backend.tensor_views import TensorView, views_of
from npu_cuda.backend.view_rules import VIEW
from npu_cuda.extension.kernel_plugins import load_plugins
from npu_ir import OpNode
from npu_ir.plugins.backend import BackendOp

ALIGNMENT = 16  # bytes; that of most PyTorch memory, and of the widest loads
_MOST_REASONS = 3


def specs_of(readings: Sequence[TensorView], alignment: int) -> list[_C.TensorSpec]:
    """Return tensor specs for the native part.

    Args:
        readings: The tensors.
        alignment: Alignment of their memory in bytes; 0 for that of the items.
    """
    return [_spec_of(item, alignment) for item in readings]


@functools.lru_cache(maxsize=4096)
def _spec_of(reading: TensorView, alignment: int) -> _C.TensorSpec:
    return _C.TensorSpec(reading.dtype, reading.shape, reading.strides, alignment)


_KINDS: dict[str, Any] = {}


def kind_of(name: str) -> Any:
    """Return the kind of a native op by its name in the registry, where it stays once it is there."""
    if name not in _KINDS:
        _KINDS.update(_C.kinds())
    return _KINDS[name]


def select_kernel(op: BackendOp, device: str, alignment: int) -> tuple[str, str]:
    """Return the id of the kernel for ``op`` ("" if there is none), and the refusals of the others.

    Args:
        op: The op to compute.
        device: "host" or "cuda".
        alignment: Alignment of all memory in bytes; 0 for that of the items.
    """
    try:
        specs = specs_of(views_of(op), alignment)
        count = len(op.inputs)
        selection = _C.select(
            kind_of(op.kind),
            specs[:count],
            specs[count:],
            op.schema_id,
            op.attrs,
            device=device,
            deterministic=True,
        )
    except errors.NpuCudaError as error:
        return "", str(error)
    reasons = list(dict.fromkeys(reason for _, reason in selection.refusals))
    more = f"; {len(reasons) - _MOST_REASONS} more" if len(reasons) > _MOST_REASONS else ""
    refusal = "; ".join(reasons[:_MOST_REASONS]) + more
    return selection.kernel_id or "", refusal or f"this build has no {device} kernel of {op.kind}"


def select_ops(node: OpNode, device: str) -> list[BackendOp] | str:
    """Return the ops of ``node`` with their kernels for aligned memory, or why there are none."""
    load_plugins()
    reasons = []
    try:
        for ops in lower_node(node, attrs):
            chosen = ops if isinstance(ops, str) else _with_kernels(ops, device)
            if not isinstance(chosen, str):
                return chosen
            reasons.append(chosen)
    except errors.InvalidArgumentError as error:  # a number that an attribute cannot hold
        reasons.append(str(error))
    return reasons[0]


def _unknown_tensor(op: BackendOp) -> str | None:
    """Return why a tensor of an op cannot be one of the native part; None if all can."""
    try:
        specs_of(views_of(op), 0)
    except errors.NpuCudaError as error:
        return str(error)
    return None


def _with_kernels(ops: Sequence[BackendOp], device: str) -> list[BackendOp] | str:
    chosen = []
    for op in ops:
        if op.kind == VIEW:
            if (reason := _unknown_tensor(op)) is not None:
                return f"{op.kind}: {reason}"
            chosen.append(op)
            continue
        # A kernel for unaligned memory is required: a tensor may start anywhere in a storage.
        anywhere, refusal = select_kernel(op, device, 0)
        if not anywhere:
            return f"{op.kind}: {refusal}"
        chosen.append(dataclasses.replace(op, kernel=select_kernel(op, device, ALIGNMENT)[0]))
    return chosen
