"""Arguments of a node, by the names of its op's schema."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch

from npu_ir import InputKind, OpNode, Value
from npu_ir.ops.calls import Slot
from npu_ir.ops.execution import binding_of
from npu_ir.ops.schema import Op, find_op, schema_of
from npu_passes.errors import PassError

# torch.export traces the constant `torch.tensor(2.0)` as a lifted constant behind these ops.
_COPIES = ("aten.lift_fresh_copy.default", "aten.lift_fresh.default", "aten.detach.default")
# Ops that make a tensor of one number, and the argument that is the number.
_NUMBERS = MappingProxyType({"aten.full.default": "fill_value", "aten.scalar_tensor.default": "s"})


def arguments_of(node: OpNode, *, defaults: bool = False) -> dict[str, Any]:
    """Return the arguments of a node by schema name: values, plain data, and lists of both.

    With ``defaults``, omitted arguments that have a default in the schema are added.

    Raises:
        PassError: The op is unknown.
    """
    op = find_op(node.op_type)
    if op is None:
        raise PassError(f"the arguments of {node.op_type} are unknown", where=f"node {node.name!r}")
    schema = schema_of(op)
    binding = binding_of(node, op)
    slots = {arg.name: item for arg, item in zip(schema.args, binding.positional, strict=False)}
    slots.update(binding.keyword)
    arguments = {name: _fill_slots(item, node) for name, item in slots.items()}
    return {**defaults_of(op), **arguments} if defaults else arguments


def number_of(item: Any) -> float | None:
    """Return the number in an argument, a literal or a constant tensor of rank 0; None otherwise."""
    if isinstance(item, (int, float)) and not isinstance(item, bool):
        return float(item)
    if not isinstance(item, Value):
        return None
    data, node = item.data, item.producer
    if node is not None and node.op_type in _COPIES:
        return number_of(node.inputs[0])
    if item.kind is InputKind.CONSTANT and data is not None:
        return float(data) if data.dim() == 0 and not data.is_complex() else None
    if node is not None and node.op_type in _NUMBERS and not item.tensor_type.shape:
        number = number_of(arguments_of(node)[_NUMBERS[node.op_type]])
        return None if number is None else _in_dtype(number, item.tensor_type.dtype)
    return None


def _in_dtype(number: float, dtype: torch.dtype) -> float | None:
    """Return a number as a tensor of this dtype holds it; None if it holds none of the kind."""
    if dtype.is_complex or not (dtype.is_floating_point or math.isfinite(number)):
        return None
    return float(torch.tensor(number, dtype=torch.float64).to(dtype))


@functools.cache
def defaults_of(op: Op) -> Mapping[str, Any]:
    """Return the default values of an op's arguments; None for an optional tensor."""
    arguments = getattr(op, "_schema", None)
    if arguments is None:
        return {}
    explicit = {item.name: item.default_value for item in arguments.arguments if item.has_default_value()}
    return {
        arg.name: explicit.get(arg.name)
        for arg in schema_of(op).args
        if arg.name in explicit or not arg.required
    }


def _fill_slots(item: Any, node: OpNode) -> Any:
    if item.__class__ is Slot:
        return node.inputs[item.index]
    if item.__class__ is list:
        return [_fill_slots(part, node) for part in item]
    return item
