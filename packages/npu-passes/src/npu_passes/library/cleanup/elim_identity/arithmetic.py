"""Arithmetic with a neutral operand: sums with 0, products with 1 and the like."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

from npu_ir import InputKind, OpNode, TensorType, Value
from npu_passes.library.cleanup.elim_identity.findings import (
    Finding,
    Refused,
    is_complex,
    is_floating,
    require_same_type,
    type_difference,
)
from npu_passes.rewriting.arguments import arguments_of

# By op: the neutral second operand, and True if the op commutes, so that the first operand may be neutral,
# too.
_NEUTRAL: Mapping[str, tuple[int, bool]] = {
    "add": (0, True),
    "sub": (0, False),
    "mul": (1, True),
    "div": (1, False),
    "true_divide": (1, False),
    "floor_divide": (1, False),
    "pow": (1, False),
    "bitwise_or": (0, True),
    "bitwise_xor": (0, True),
    "bitwise_left_shift": (0, False),
    "bitwise_right_shift": (0, False),
}
_OVERLOADS = ("Tensor", "Scalar", "Tensor_mode", "Scalar_mode", "Tensor_Scalar", "Tensor_Tensor", "default")
ARITHMETIC = frozenset(f"aten.{name}.{overload}" for name in _NEUTRAL for overload in _OVERLOADS)
_SUMS = ("add", "sub")
_LARGEST = 1 << 20  # elements of a constant whose content is compared


class Arithmetic:
    """Finder of neutral operands in one graph; compares each constant once."""

    def __init__(self, *, signed_zeros: bool) -> None:
        self._signed_zeros = signed_zeros
        self._equal: dict[tuple[Value, int], bool] = {}

    def find_identity(self, node: OpNode) -> Finding | Refused | None:
        """Return a finding for the operand that a node returns unchanged; None if there is none."""
        name = node.op_type.split(".")[1]
        neutral, commutes = _NEUTRAL[name]
        if not _is_candidate(node, neutral):
            return None
        args = arguments_of(node)
        first, second = list(args.values())[:2]
        alpha = args.get("alpha", 1)
        if self._equals(second, neutral) and _is_finite(alpha):
            return self._check_operand(node, first, second, alpha)
        if name in _SUMS and _is_zero(alpha) and _is_finite(second):
            return self._check_operand(node, first, second, alpha)
        if commutes and self._equals(first, neutral) and _is_number(alpha) and alpha == 1:
            return self._check_operand(node, second, first, alpha)
        return None

    def _check_operand(self, node: OpNode, kept: Any, neutral: Any, alpha: Any) -> Finding | Refused | None:
        """Return ``operand`` if it has the type of the output and no element changes."""
        if not (isinstance(kept, Value) and isinstance(kept.type, TensorType)):
            return None
        name, output = node.op_type.split(".")[1], node.outputs[0]
        rule = f"{name} {_NEUTRAL[name][0]}"
        if (name == "floor_divide" or "rounding_mode" in node.attrs) and is_floating(kept.type.dtype):
            return Refused(rule, "it rounds")
        if type_difference(output.type, kept.type) is None:
            # (inf + 0j) * (1 + 0j) has the imaginary part inf * 0, which is NaN.
            if name not in _SUMS and is_complex(kept):
                return Refused(rule, "complex arithmetic makes NaN of infinities")
            if name in _SUMS and self._signed_zeros and self._may_change_sign(node, kept, neutral, alpha):
                return Refused(rule, "it makes 0.0 of -0.0, and signed_zeros is set")
        return require_same_type(rule, output, kept)

    def _may_change_sign(self, node: OpNode, kept: Value, zero: Any, alpha: Any) -> bool:
        """Return whether a sum with zero may turn -0.0 into 0.0.

        By IEEE 754, -0.0 + -0.0 and -0.0 - 0.0 are -0.0, and -0.0 + 0.0 is 0.0 when rounding to nearest.
        """
        if not (kept.tensor_type.dtype.is_floating_point or kept.tensor_type.dtype.is_complex):
            return False
        content = _content(zero) if isinstance(zero, Value) else torch.tensor(zero, dtype=torch.complex128)
        if content is None or kept.tensor_type.dtype.is_complex:
            return True
        factor = float(alpha) if node.op_type.startswith("aten.add.") else -float(alpha)
        return not bool((content.real.to(torch.float64) * factor).signbit().all())

    def _equals(self, item: Any, number: int) -> bool:
        """Return whether an operand equals ``number``, or is a constant whose elements all do."""
        if not isinstance(item, Value):
            return _is_number(item) and item == number
        if (item, number) not in self._equal:
            content = _content(item)
            self._equal[item, number] = content is not None and bool((content == number).all())
        return self._equal[item, number]


def _is_candidate(node: OpNode, neutral: int) -> bool:
    """Return whether an operand may be neutral: a cheap test, because binding arguments is slow."""
    if len(node.inputs) > 1:
        return any(map(_is_constant, node.inputs))
    operand = node.attrs.get("other", node.attrs.get("exponent"))
    return operand is None or operand == neutral or _is_zero(node.attrs.get("alpha"))


def _content(value: Value) -> torch.Tensor | None:
    """Return the content of a constant; None for other values and for large constants."""
    data = value.data if _is_constant(value) else None
    if data is None or data.numel() > _LARGEST:
        return None
    return data.float() if data.is_floating_point() and data.itemsize == 1 else data


def _is_constant(value: Value) -> bool:
    return value.kind is InputKind.CONSTANT


def _is_number(item: Any) -> bool:
    return isinstance(item, (bool, int, float, complex))


def _is_finite(item: Any) -> bool:
    return _is_number(item) and not isinstance(item, complex) and math.isfinite(item)


def _is_zero(item: Any) -> bool:
    return _is_number(item) and item == 0
