"""Result types of ops that compute them alike on every device: by a call on tensors of the device ``meta``.

A FakeTensor knows the device that it stands for, which decides the strides of some results. It takes ten
times as long, and the first one of a process imports PyTorch's compiler, which takes seconds; so do some
pointwise ops on ``meta``, but no views.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch

from npu_ir._torch.fake import below_python
from npu_ir._torch.ops import OpOverload
from npu_ir.core.isolation import isolated_torch_state
from npu_ir.core.types import TensorType, Type
from npu_ir.errors import NpuError
from npu_ir.ops.calls import Binding
from npu_ir.ops.execution import run_op
from npu_ir.ops.schema import Op, schema_of
from npu_ir.ops.torch_sizes import traced_type

_META = torch.device("meta")


def types_on_meta(op: Op, binding: Binding, types: Sequence[Type]) -> tuple[Type, ...] | None:
    """Return the types of the results of an op on tensors of static types.

    None if they may depend on the device, if an input is not a strided tensor, or if the call fails: then
    FakeTensors have the last word.
    """
    if not (isinstance(op, OpOverload) and is_alike_on_devices(op)):
        return None
    tensors = [type for type in types if isinstance(type, TensorType) and type.layout is torch.strided]
    if len(tensors) < len(types):
        return None
    try:
        with isolated_torch_state(_META), below_python():
            inputs = [
                torch.empty_strided(type.static_shape, type.static_strides, dtype=type.dtype, device=_META)
                for type in tensors
            ]
            results = run_op(op, binding, inputs, _META)
            is_usual = all(isinstance(item, torch.Tensor) and item.device == _META for item in results)
            return tuple([traced_type(item, int) for item in results]) if is_usual else None
    except (NpuError, RuntimeError, TypeError, ValueError, IndexError, OverflowError):
        return None


@functools.cache
def is_alike_on_devices(op: OpOverload) -> bool:
    """Return whether an op has one implementation of its result types: ATen's views and pointwise ops.

    Views are made by the same code for every device. Pointwise ops share TensorIterator, which decides dtype
    and strides; those that draw random numbers have loops of their own.
    """
    if op.namespace != "aten" or schema_of(op).writes:
        return False
    is_view = bool(op._schema.returns) and all(item.alias_info is not None for item in op._schema.returns)
    is_pointwise = torch.Tag.pointwise in op.tags and torch.Tag.nondeterministic_seeded not in op.tags
    return is_view or is_pointwise
