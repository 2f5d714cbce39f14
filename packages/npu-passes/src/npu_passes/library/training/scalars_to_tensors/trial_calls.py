"""Calls of ops in a graph, and trial calls that only infer types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch

from npu_ir import Value
from npu_ir.core.types import Type
from npu_ir.errors import GraphError
from npu_ir.ops.arguments import flatten_arguments
from npu_ir.ops.inference import infer_types
from npu_ir.ops.schema import find_op, schema_of
from npu_ir.symbolic.constraints import Range


class Caller(Protocol):
    """Interface of `npu_passes.core.edit.Edit`, which adds nodes to a graph, and `Trial`, which does not."""

    def calls(
        self, op_type: str, *args: Any, types: Sequence[Type] | None = None, **kwargs: Any
    ) -> tuple[Value, ...]:
        """Return the results of a call of an op."""


class Trial:
    """Caller that infers the types of results without adding nodes.

    Args:
        symbols: The symbols of the graph.
    """

    def __init__(self, symbols: Mapping[str, Range]) -> None:
        self._symbols = symbols

    def calls(
        self, op_type: str, *args: Any, types: Sequence[Type] | None = None, **kwargs: Any
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
