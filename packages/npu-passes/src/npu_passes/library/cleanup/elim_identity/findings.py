"""Result of the search for identities at one node."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from npu_ir import ScalarType, TensorType, Value
from npu_ir.core.types import dtype_name


@dataclass(frozen=True, slots=True)
class Finding:
    """A value that can replace an output of a node."""

    rule: str  # the identity, in a word or two
    old: Value
    new: Value  # a value with the same content and type


@dataclass(frozen=True, slots=True)
class Refused:
    """Reason why an apparent identity does not hold."""

    rule: str
    reason: str


def require_same_type(rule: str, old: Value, new: Value) -> Finding | Refused:
    """Return a finding if both values have the same type, else the difference as a refusal."""
    reason = type_difference(old.type, new.type)
    return Finding(rule, old, new) if reason is None else Refused(rule, reason)


def type_difference(made: TensorType | ScalarType, given: TensorType | ScalarType) -> str | None:
    """Return how an op changes the type of its input, in words; None if it does not."""
    if made == given:
        return None
    if not (isinstance(made, TensorType) and isinstance(given, TensorType)):
        return f"it makes {made} of {given}"
    if made.dtype != given.dtype:
        return f"it promotes {dtype_name(given.dtype)} to {dtype_name(made.dtype)}"
    if made.shape != given.shape:
        return f"it broadcasts {_sizes(given)} to {_sizes(made)}"
    return f"it changes the layout from {given} to {made}"


def is_complex(value: Value) -> bool:
    return isinstance(value.type, TensorType) and value.type.dtype.is_complex


def is_floating(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point or dtype.is_complex


def _sizes(type: TensorType) -> str:
    return f"[{', '.join(map(str, type.shape))}]"
