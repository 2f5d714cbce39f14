"""Fused operators: ``npu::linear_activation``, ``npu::add_layer_norm`` and ``npu::add_rms_norm``.

Each is composed of PyTorch's own operators (``CompositeImplicitAutograd``), so it runs on every device, is
differentiated and counted as they are, and can be decomposed again. A backend that has its own kernel
registers it with ``torch.library.impl``. Importing this module registers them; the plugin ``npu-passes``
does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import torch
import torch.nn.functional as F
from torch import Tensor

from npu_passes.errors import PassError
from npu_passes.ops.registration import register_composite

LINEAR_ACTIVATION = "npu.linear_activation.default"
ADD_LAYER_NORM = "npu.add_layer_norm.default"
ADD_RMS_NORM = "npu.add_rms_norm.default"


def _gelu_tanh(input: Tensor) -> Tensor:
    return F.gelu(input, approximate="tanh")


ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = MappingProxyType(
    {
        "gelu": F.gelu,
        "gelu_tanh": _gelu_tanh,
        "hardsigmoid": F.hardsigmoid,
        "hardswish": F.hardswish,
        "mish": F.mish,
        "relu": F.relu,
        "relu6": F.relu6,
        "sigmoid": torch.sigmoid,
        "silu": F.silu,
        "tanh": torch.tanh,
    }
)

_SCHEMAS = {
    "linear_activation": "(Tensor input, Tensor weight, Tensor? bias, str activation) -> Tensor",
    "add_layer_norm": "(Tensor input, Tensor residual, SymInt[] normalized_shape, Tensor? weight, "
    "Tensor? bias, float eps) -> (Tensor norm, Tensor sum)",
    "add_rms_norm": "(Tensor input, Tensor residual, SymInt[] normalized_shape, Tensor? weight, float? eps) "
    "-> (Tensor norm, Tensor sum)",
}


def linear_activation(input: Tensor, weight: Tensor, bias: Tensor | None, activation: str) -> Tensor:
    """Return ``activation(linear(input, weight, bias))``.

    Args:
        input: [*, in].
        weight: [out, in].
        bias: [out].
        activation: One of `ACTIVATIONS`.

    Raises:
        PassError: The activation is unknown.
    """
    if activation not in ACTIVATIONS:
        raise PassError(
            f"npu::linear_activation has no activation {activation!r}", fix=f"it has {', '.join(ACTIVATIONS)}"
        )
    return ACTIVATIONS[activation](F.linear(input, weight, bias))


def add_layer_norm(
    input: Tensor,
    residual: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
) -> tuple[Tensor, Tensor]:
    """Return the layer norm of ``input + residual``, and that sum."""
    total = input + residual
    return F.layer_norm(total, list(normalized_shape), weight, bias, eps), total


def add_rms_norm(
    input: Tensor, residual: Tensor, normalized_shape: Sequence[int], weight: Tensor | None, eps: float | None
) -> tuple[Tensor, Tensor]:
    """Return the RMS norm of ``input + residual``, and that sum."""
    total = input + residual
    return F.rms_norm(total, list(normalized_shape), weight, eps), total


for _function in (linear_activation, add_layer_norm, add_rms_norm):
    register_composite(_SCHEMAS[_function.__name__], _function)
