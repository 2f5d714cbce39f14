"""What is found out about one node."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from npu_ir import ScalarType, TensorType, Value
from npu_ir.core.types import dtype_name


@dataclass(frozen=True, slots=True)
class Finding:
    """A value can take the place of another.

    Attributes:
        rule: In a word or two, why.
        old: What a node returns.
        new: What has the same content and type.
    """

    rule: str
    old: Value
    new: Value


@dataclass(frozen=True, slots=True)
class Refused:
    """It looked as if a value could take the place of another, but it cannot."""

    rule: str
    reason: str


def same_type_or_reason(rule: str, old: Value, new: Value) -> Finding | Refused:
    """Return the finding where both values have one type, else in what they differ."""
    reason = difference(old.type, new.type)
    return Finding(rule, old, new) if reason is None else Refused(rule, reason)


def difference(made: TensorType | ScalarType, given: TensorType | ScalarType) -> str | None:
    """Return what an op does to the type of its input; None if nothing."""
    if made == given:
        return None
    if not (isinstance(made, TensorType) and isinstance(given, TensorType)):
        return f"it makes {made} of {given}"
    if made.dtype != given.dtype:
        return f"it promotes {dtype_name(given.dtype)} to {dtype_name(made.dtype)}"
    if made.shape != given.shape:
        return f"it broadcasts {_sizes(given)} to {_sizes(made)}"
    return f"it lays {given} out as {made}"


def is_complex(value: Value) -> bool:
    return isinstance(value.type, TensorType) and value.type.dtype.is_complex


def is_floating(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point or dtype.is_complex


def _sizes(type: TensorType) -> str:
    return f"[{', '.join(map(str, type.shape))}]"
