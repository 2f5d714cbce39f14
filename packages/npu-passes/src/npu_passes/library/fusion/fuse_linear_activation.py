"""Fusion of a linear layer with the activation after it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from npu_ir import TensorType, Value
from npu_passes.core.base import within
from npu_passes.ops.fused import LINEAR_ACTIVATION
from npu_passes.patterns import PatternPass, Rule, aten, attr, commutative, maybe, op, var
from npu_passes.patterns.terms import Term

x, weight, bias = var("input"), var("weight"), maybe("bias")


# By label in names of rules: the pattern of an activation.
_CALLS: dict[str, Callable[[Term], Term]] = {
    "gelu": aten.gelu.default,
    "gelu_tanh": lambda term: aten.gelu.default(term, approximate="tanh"),
    "hardsigmoid": aten.hardsigmoid.default,
    "hardswish": aten.hardswish.default,
    "hardtanh": lambda term: aten.hardtanh.default(term, 0, 6),
    "mish": aten.mish.default,
    "relu": aten.relu.default,
    "relu6": aten.relu6.default,
    "sigmoid": aten.sigmoid.default,
    "silu": aten.silu.default,
    "tanh": aten.tanh.default,
}


def _close_to(name: str, wanted: float) -> Term:
    """Return a wildcard for a number, with a tolerance for the number of digits that models write."""
    return attr(name, lambda item: isinstance(item, float) and math.isclose(item, wanted, rel_tol=1e-6))


def _fusions() -> Iterator[Rule]:
    linear = aten.linear.default(x, weight, bias)
    # GPT-2 has weights of [in, out], and a view between the product and the activation.
    addmm = aten.addmm.default(var("bias", lambda value: value.tensor_type.rank == 1), x, weight)
    transposed_weight = aten.permute.default(weight, [1, 0])
    fused = op(LINEAR_ACTIVATION)
    for label, activation in _CALLS.items():
        name = "relu6" if label == "hardtanh" else label
        yield Rule(f"linear-{label}", activation(linear), fused(x, weight, bias, name))
        of_addmm = fused(x, transposed_weight, var("bias"), name)
        yield Rule(f"addmm-{label}", activation(addmm), of_addmm)
        for view in (aten.view.default, aten.reshape.default):
            pattern = activation(view(addmm, attr("sizes")))
            between = view.op_type.split(".")[1]
            yield Rule(f"addmm-{between}-{label}", pattern, view(of_addmm, attr("sizes")))


def _is_float(value: Value) -> bool:
    return isinstance(value.type, TensorType) and value.type.dtype.is_floating_point


def _decomposed_activations() -> Iterator[Rule]:
    x = var("input", _is_float)
    yield Rule("silu", commutative(aten.mul.Tensor(x, aten.sigmoid.default(x))), aten.silu.default(x))
    cube = aten.mul.Tensor(aten.pow.Tensor_Scalar(x, 3), _close_to("a", 0.044715))
    inner = aten.mul.Tensor(commutative(aten.add.Tensor(x, cube)), _close_to("b", math.sqrt(2 / math.pi)))
    half = aten.mul.Tensor(x, 0.5)
    pattern = commutative(aten.mul.Tensor(half, aten.add.Tensor(aten.tanh.default(inner), 1)))
    yield Rule("gelu-tanh", pattern, aten.gelu.default(x, approximate="tanh"))


class FuseLinearActivation(PatternPass):
    """Fuse ``activation(linear(x))`` into ``npu::linear_activation``.

    1. ``aten.linear`` and an activation: relu, relu6, gelu (both forms), silu, sigmoid, tanh, mish,
       hardswish, hardsigmoid. The output of the linear layer has no other readers.
    2. ``aten.addmm`` with a bias vector and an activation, with or without a view between them.
    3. Decomposed SiLU and tanh-form GELU become ``aten.silu`` and ``aten.gelu`` first, also without a linear
       layer in front of them.

    The first two call the same ops as before; the third rounds less often.
    """

    name = "fuse-linear-activation"
    numerics = within(1e-5)
    rules = (*_fusions(), *_decomposed_activations())
