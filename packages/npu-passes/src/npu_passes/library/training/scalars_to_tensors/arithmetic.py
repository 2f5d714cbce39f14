"""Calls of ops in a graph or on trial, and arithmetic on numbers as calls of ops on 0-d tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch

from npu_ir import OpNode, ScalarType, TensorType, Value
from npu_ir.core.types import Type
from npu_ir.errors import GraphError
from npu_ir.ops.arguments import flatten_arguments
from npu_ir.ops.inference import infer_types
from npu_ir.ops.schema import find_op, schema_of
from npu_ir.symbolic.constraints import Range


class Caller(Protocol):
    """Interface of `npu_passes.core.edit.Edit`, which adds nodes to a graph, and `Trial`, which does not."""

    def calls(
        self, op_type: str, /, *args: Any, types: Sequence[Type] | None = None, **kwargs: Any
    ) -> tuple[Value, ...]:
        """Return the results of a call of an op."""


class Trial:
    """Caller that infers the types of results without adding nodes."""

    def __init__(self, symbols: Mapping[str, Range]) -> None:
        self._symbols = symbols

    def calls(
        self, op_type: str, /, *args: Any, types: Sequence[Type] | None = None, **kwargs: Any
    ) -> tuple[Value, ...]:
        """Return values outside of any graph, with the inferred types.

        Raises:
            GraphError: The op does not accept these arguments.
        """
        op = find_op(op_type)
        if op is None:
            raise GraphError(f"there is no operator {op_type}")
        flat = flatten_arguments(schema_of(op), args, kwargs, lambda item: isinstance(item, Value))
        if types is None:
            types = infer_types(
                op_type, flat.inputs, flat.attrs, operands=flat.operands, symbols=self._symbols
            )
        return tuple(detached_value(type) for type in types)


def detached_value(type: Type) -> Value:
    """Return a value of a type, outside of any graph."""
    return Value(-1, "", type)


def cast(caller: Caller, value: Value, dtype: torch.dtype) -> Value:
    """Return a tensor cast to ``dtype``; the tensor itself if it has that dtype."""
    if value.tensor_type.dtype == dtype:
        return value
    return caller.calls("aten._to_copy.default", value, dtype=dtype)[0]


# Converts an input of the graph that is a number to a tensor.
BOUNDARY = "aten.scalar_tensor.default"
ITEMS = ("aten._local_scalar_dense.default", "aten.item.default")

# Overloads for two tensors, for a tensor and a literal, and for a literal and a tensor.
_BINARY: Mapping[str, tuple[str, str | None, str | None]] = {
    "operator.add": ("add.Tensor", "add.Scalar", None),
    "operator.sub": ("sub.Tensor", "sub.Scalar", None),
    "operator.mul": ("mul.Tensor", "mul.Scalar", None),
    "operator.truediv": ("div.Tensor", "div.Scalar", None),
    "operator.pow": ("pow.Tensor_Tensor", "pow.Tensor_Scalar", "pow.Scalar"),
    "math.pow": ("pow.Tensor_Tensor", "pow.Tensor_Scalar", "pow.Scalar"),
    **{
        f"operator.{name}": (f"{name}.Tensor", f"{name}.Scalar", None)
        for name in ("eq", "ne", "lt", "le", "gt", "ge")
    },
    "torch.sym_max": ("maximum.default", None, None),
    "torch.sym_min": ("minimum.default", None, None),
}
_ROOTS = ("sqrt", "sin", "cos", "tan", "sinh", "cosh", "tanh", "asin", "acos", "atan", "log2")
_UNARY: Mapping[str, str] = {
    "operator.neg": "neg.default",
    **dict.fromkeys(("operator.abs", "builtins.abs", "math.fabs"), "abs.default"),
    **{f"{place}{name}": f"{name}.default" for place in ("math.", "torch._sym_") for name in _ROOTS},
    "torch.sym_sqrt": "sqrt.default",
    "math.exp": "exp.default",
}
# They return the number itself, or its value as a float.
_SAME = ("operator.pos", "builtins.float", "torch.sym_float")


def is_arithmetic(node: OpNode) -> bool:
    """Return whether a node computes a number from numbers, and an op on 0-d tensors computes the same."""
    return node.op_type in _BINARY or node.op_type in _UNARY or node.op_type in _SAME


def type_of_number(type: object, dtype: torch.dtype) -> TensorType:
    """Return the type of the tensor that replaces a number; ``dtype`` is that of floats."""
    kind = type.kind if isinstance(type, ScalarType) else "float"
    return TensorType((), {"int": torch.int64, "bool": torch.bool}.get(kind, dtype))


def compute(caller: Caller, node: OpNode, operands: Sequence[Any], dtype: torch.dtype) -> Value:
    """Return the tensor that replaces the number computed by a node, for which `is_arithmetic` holds.

    The operands are its arguments, with tensors in place of the numbers that are not literals; at least one.
    ``dtype`` is that of floats.
    """
    wanted = type_of_number(node.outputs[0].type, dtype).dtype
    if wanted == dtype:
        operands = [cast(caller, item, dtype) if isinstance(item, Value) else item for item in operands]
    first = operands[0]
    if node.op_type in _SAME:
        return first  # type: ignore[no-any-return]
    if node.op_type in _UNARY:
        return caller.calls(f"aten.{_UNARY[node.op_type]}", first)[0]
    both, right, left = _BINARY[node.op_type]
    second = operands[1]
    if right is not None and not isinstance(second, Value):
        return caller.calls(f"aten.{right}", first, second)[0]
    if left is not None and not isinstance(first, Value):
        return caller.calls(f"aten.{left}", first, second)[0]
    if node.op_type == "operator.sub" and not isinstance(first, Value):
        return caller.calls("aten.rsub.Scalar", second, first)[0]
    tensors = [
        item if isinstance(item, Value) else tensor_of_number(caller, item, wanted) for item in operands
    ]
    return caller.calls(f"aten.{both}", *tensors)[0]


def tensor_of_number(caller: Caller, number: Any, dtype: torch.dtype) -> Value:
    """Return the tensor of a number, of the graph or a literal; created on the device that runs the graph."""
    return caller.calls(
        BOUNDARY, number, types=[TensorType((), dtype)], dtype=dtype, device=torch.device("meta")
    )[0]


def read_number(caller: Caller, node: OpNode, dtype: torch.dtype) -> Value:
    """Return the 0-d tensor of a number that ``node`` reads from a tensor."""
    source = node.inputs[0]
    if source.tensor_type.rank:
        source = caller.calls("aten.reshape.default", source, [])[0]
    return cast(caller, source, type_of_number(node.outputs[0].type, dtype).dtype)
