"""FakeTensors that state the dtypes and strides that the kernels of PyTorch return (torch 2.13 differs).

Strides count where random numbers follow: dropout fills the memory of its result in order.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._ops import OpOverload

from npu_ir._torch.patches import SharedPatch

aten = torch.ops.aten

# For results of norms by number, the argument whose dtype they have. Statistics have that of the weights.
_DTYPES_OF_NORMS: Mapping[OpOverload, Mapping[int, int]] = {
    aten.native_group_norm.default: {1: 1, 2: 1},
    aten.native_group_norm_backward.default: {0: 1, 1: 4, 2: 4},
    aten.native_layer_norm_backward.default: {1: 5, 2: 6},  # until torch 2.9
}
# Likewise on the CPU. Elsewhere, statistics are float32, which FakeTensors know.
_DTYPES_OF_NORMS_ON_CPU: Mapping[OpOverload, Mapping[int, int]] = {
    **_DTYPES_OF_NORMS,
    aten._native_batch_norm_legit.default: {1: 3, 2: 3},
    aten._native_batch_norm_legit.no_stats: {1: 1, 2: 1},
    aten._native_batch_norm_legit_functional.default: {1: 3, 2: 3},
    aten._native_batch_norm_legit_no_training.default: {1: 3, 2: 3},
    aten.native_layer_norm.default: {1: 2, 2: 2},
}
# Gradients of losses of ``input`` and ``target``, which are the arguments 1 and 2.
_DIVIDED_BY_COUNT = frozenset(
    {aten.mse_loss_backward.default, aten.smooth_l1_loss_backward.default, aten.huber_loss_backward.default}
)


@functools.cache
def corrected_fakes() -> SharedPatch:
    """Have ops on FakeTensors state the dtypes of norms, and on the CPU the strides, that kernels return."""
    from torch._subclasses import FakeTensorMode

    return SharedPatch(FakeTensorMode, "dispatch", _corrected)


def _corrected(dispatch: Callable[..., Any]) -> Callable[..., Any]:
    def corrected(self: Any, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if op in _DIVIDED_BY_COUNT and 0 in args[1].shape:
            return torch.add(args[1], args[2])  # PyTorch's decomposition divides a number by the count
        stated: Any = dispatch(self, op, types, args, kwargs)
        if stated is NotImplemented:
            return stated
        if op in _DTYPES_OF_NORMS_ON_CPU:
            stated = _with_dtypes(stated, op, args)
        layout = _LAYOUTS_ON_CPU.get(op)
        return stated if layout is None else _with_layout(stated, layout, args)

    return corrected


def _with_dtypes(stated: Sequence[Any], op: OpOverload, args: Sequence[Any]) -> tuple[Any, ...]:
    is_on_cpu = args[0].device.type == "cpu"
    dtypes = _DTYPES_OF_NORMS_ON_CPU[op] if is_on_cpu else _DTYPES_OF_NORMS.get(op, {})
    results = list(stated)
    for place, source in dtypes.items():
        if results[place] is not None and args[source] is not None:
            results[place] = results[place].to(args[source].dtype)
    return tuple(results)


def _with_layout(stated: Any, layout: Callable[..., Any], args: Sequence[Any]) -> Any:
    """Return the results of an op, of which the first is in another layout."""
    first, *others = stated if isinstance(stated, (list, tuple)) else (stated,)
    if first.device.type != "cpu" or not all(type(size) is int for size in (*first.shape, *first.stride())):
        return stated
    corrected = layout(first, *args)
    return (corrected, *others) if others else corrected


def _contiguous(result: Any, *_: Any) -> Any:
    return result.contiguous()


def _in_suggested_format(result: Any, source: Any, *_: Any) -> Any:
    """Return a result in the memory format that the strides of the input suggest."""
    from torch._prims_common import suggest_memory_format

    return result.contiguous(memory_format=suggest_memory_format(source))


def _as_sum(result: Any, left: Any, right: Any, *_: Any) -> Any:
    """Return a result of two operands with the strides of their sum, which is traced as it is computed."""
    return torch.empty_like(torch.add(left, right), dtype=result.dtype)


_LAYOUTS_ON_CPU: Mapping[OpOverload, Callable[..., Any]] = {
    **dict.fromkeys(
        (
            aten.native_batch_norm.default,
            aten._native_batch_norm_legit.default,
            aten._native_batch_norm_legit.no_stats,
            aten._native_batch_norm_legit_functional.default,
            aten._native_batch_norm_legit_no_training.default,
            aten.channel_shuffle.default,
            aten.max_unpool2d.default,
            aten.reflection_pad3d.default,
            aten.replication_pad3d.default,
        ),
        _in_suggested_format,
    ),
    **dict.fromkeys(
        (aten.pow.Scalar, aten.log_sigmoid_forward.default),
        _contiguous,
    ),
    **dict.fromkeys(
        (
            aten.copysign.Tensor,
            aten.div.Tensor_mode,
            aten.floor_divide.default,
            aten.heaviside.default,
            aten.logaddexp.default,
            aten.logaddexp2.default,
            aten.logical_and.default,
            aten.logical_or.default,
            aten.logical_xor.default,
            aten.xlogy.Tensor,
        ),
        _as_sum,
    ),
}
