"""Norms while a step is traced: batch norms that declare their writes, and the dtypes of fake results."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch._ops import OpOverload

from npu_runtime._torch.patches import set_attributes

# For results of norms by number, the argument whose dtype they have. Statistics have that of the weights.
_DTYPES_OF_NORMS: Mapping[OpOverload, Mapping[int, int]] = {
    torch.ops.aten.native_group_norm.default: {1: 1, 2: 1},
    torch.ops.aten.native_group_norm_backward.default: {0: 1, 1: 4, 2: 4},
    torch.ops.aten.native_layer_norm_backward.default: {1: 5, 2: 6},  # until torch 2.9
}
# Likewise on the CPU. Elsewhere, statistics are float32, which FakeTensors know.
_DTYPES_OF_NORMS_ON_CPU: Mapping[OpOverload, Mapping[int, int]] = {
    **_DTYPES_OF_NORMS,
    torch.ops.aten._native_batch_norm_legit.default: {1: 3, 2: 3},
    torch.ops.aten._native_batch_norm_legit.no_stats: {1: 1, 2: 1},
    torch.ops.aten._native_batch_norm_legit_functional.default: {1: 3, 2: 3},
    torch.ops.aten._native_batch_norm_legit_no_training.default: {1: 3, 2: 3},
    torch.ops.aten.native_layer_norm.default: {1: 2, 2: 2},
}


def corrected_norms() -> contextlib.AbstractContextManager[None]:
    """Have norms of fake 16-bit floats and float32 weights return what real ones do (torch 2.13 differs)."""
    from torch._subclasses import FakeTensorMode

    dispatch = FakeTensorMode.dispatch

    def corrected(self: Any, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        stated: Any = dispatch(self, op, types, args, kwargs)
        if op not in _DTYPES_OF_NORMS_ON_CPU:
            return stated
        is_on_cpu = args[0].device.type == "cpu"
        dtypes = _DTYPES_OF_NORMS_ON_CPU[op] if is_on_cpu else _DTYPES_OF_NORMS.get(op, {})
        results = list(stated)
        for place, source in dtypes.items():
            if results[place] is not None and args[source] is not None:
                results[place] = results[place].to(args[source].dtype)
        return tuple(results)

    return set_attributes((FakeTensorMode, "dispatch", corrected))


def batch_norm_decompositions() -> dict[Any, Callable[..., Any]]:
    """Return decompositions of batch norms: the schema of ``native_batch_norm`` declares no writes."""
    aten = torch.ops.aten

    def batch_norm(
        input: Any,
        weight: Any,
        bias: Any,
        mean: Any,
        variance: Any,
        training: bool,
        momentum: float,
        eps: float,
    ) -> Any:
        if mean is None:
            return aten._native_batch_norm_legit.no_stats(input, weight, bias, training, momentum, eps)
        if training:
            return aten._native_batch_norm_legit(input, weight, bias, mean, variance, training, momentum, eps)
        return aten._native_batch_norm_legit_no_training(input, weight, bias, mean, variance, momentum, eps)

    return {aten.native_batch_norm.default: batch_norm}
