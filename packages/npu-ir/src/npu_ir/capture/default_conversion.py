"""Default conversion of an FX node, by the schema or signature of its op."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import GraphModule, Node

from npu_ir._torch.ops import OpOverload
from npu_ir.capture.fx_nodes import location_of
from npu_ir.capture.operand_dtypes import needed_cast, require_supported_dtypes
from npu_ir.core.literals import Literal
from npu_ir.core.node import Value
from npu_ir.core.types import ScalarType, TensorType, Type
from npu_ir.errors import ConversionError, GraphError
from npu_ir.ops.arguments import FlatArguments, flatten_arguments
from npu_ir.ops.execution import flatten_results
from npu_ir.ops.schema import Op, OpSchema, op_type_of, schema_of

if TYPE_CHECKING:
    from npu_ir.capture.convert import Converter


def convert_by_schema(converter: Converter, node: Node, op: Op) -> Any:
    """Append the graph node for an FX node that calls ``op``; return its values, nested as FX has them."""
    schema = schema_of(op)
    flat = _flatten(converter, node, schema, node.args)
    if isinstance(op, OpOverload) and not op._schema.returns:
        converter.insert(node, op_type_of(op), flat.inputs, flat.attrs, types=[], operands=flat.operands)
        return None
    if any(isinstance(item, GraphModule) for item in flat.inputs):
        return _convert_with_regions(converter, node, op, flat)
    types = _keep_dtypes(schema, flat, converter.types(node))
    cast = needed_cast(node, op, types) if isinstance(op, OpOverload) else None
    if isinstance(op, OpOverload):
        require_supported_dtypes(node, op)
    inputs = _insert_casts(converter, node, flat.inputs, cast)
    name = _node_name(node, schema)
    inserted = converter.insert(
        node,
        op_type_of(op),
        inputs,
        _pin_dtype(schema, flat.inputs, flat.attrs, types),
        types=types,
        operands=flat.operands,
        name=name,
        output_names=_output_names(name, schema, len(types)),
    )
    return converter.nest(node, inserted.outputs)


def _convert_with_regions(converter: Converter, node: Node, op: Op, flat: FlatArguments) -> Any:
    """Append the graph node for a control-flow operator, with its bodies as regions."""
    pairs = list(zip(flat.operands, flat.inputs, strict=True))
    inserted = converter.insert(
        node,
        op_type_of(op),
        [item for _, item in pairs if isinstance(item, Value)],
        flat.attrs,
        operands=[operand for operand, item in pairs if isinstance(item, Value)],
        regions={operand: converter.region(item) for operand, item in pairs if isinstance(item, GraphModule)},
    )
    return converter.nest(node, inserted.outputs)


def _insert_casts(
    converter: Converter, node: Node, inputs: Sequence[Value], dtype: torch.dtype | None
) -> Sequence[Value]:
    if dtype is None:
        return inputs
    casts = [
        converter.insert(
            node,
            "aten._to_copy.default",
            [value],
            {"dtype": dtype},
            types=dataclasses.replace(value.tensor_type, dtype=dtype),
            operands=["self"],
            name="_to_copy",
        )
        for value in inputs
    ]
    return [cast.outputs[0] for cast in casts]


def convert_functional_call(converter: Converter, node: Node) -> Any:
    """Append the graph node for an op that runs on copies of what it writes, and returns them, too."""
    op, *args = node.args
    assert isinstance(op, OpOverload)
    schema = schema_of(op)
    flat = _flatten(converter, node, schema, args)
    # None for an op without results, and for an absent optional tensor.
    results = flatten_results(node.meta["val"])
    inserted = converter.insert(
        node,
        op_type_of(op),
        flat.inputs,
        flat.attrs,
        types=[converter.type(node, leaf) for leaf in results if leaf is not None],
        operands=flat.operands,
        name=op._opname,
    )
    outputs = iter(inserted.outputs)
    return converter.nest(node, [None if leaf is None else next(outputs) for leaf in results])


def _flatten(converter: Converter, node: Node, schema: OpSchema, args: Sequence[Any]) -> FlatArguments:
    try:
        return flatten_arguments(schema, converter.value(args), converter.value(node.kwargs), _is_value)
    except GraphError as error:
        raise ConversionError(error.message, where=location_of(node), fix=error.fix) from error


def _keep_dtypes(schema: OpSchema, flat: FlatArguments, types: list[Type]) -> list[Type]:
    """Give the new content of an argument (``running_mean_out``) the argument's dtype.

    New half-precision running statistics are float32 as FakeTensors, but not in reality (torch 2.13).
    """
    if len(schema.return_names) != len(types):
        return types
    argument_types = {
        f"{name}_out": value.type for name, value in zip(flat.operands, flat.inputs, strict=True)
    }
    old_types = [argument_types.get(name) for name in schema.return_names]
    return [
        dataclasses.replace(type, dtype=old.dtype)
        if isinstance(old, TensorType) and isinstance(type, TensorType)
        else type
        for old, type in zip(old_types, types, strict=True)
    ]


def _is_value(argument: Any) -> bool:
    return isinstance(argument, (Value, GraphModule))


def _node_name(node: Node, schema: OpSchema) -> str:
    """Return the FX node's name; ``relu__1`` becomes ``relu_1`` where relu replaces relu_."""
    if isinstance(node.target, OpOverload) and node.target is not schema.op:
        written, functional = node.target._opname, str(schema.op._opname)
        if node.name.startswith(written):
            return functional + node.name[len(written) :]
    return node.name


def _output_names(name: str, schema: OpSchema, count: int) -> list[str] | None:
    names = schema.return_names
    if count < 2 or len(names) != count or not all(names):
        return None
    return [f"{name}.{result}" for result in names]


def _pin_dtype(
    schema: OpSchema, inputs: Sequence[Value], attrs: dict[str, Literal], types: list[Type]
) -> dict[str, Literal]:
    """Fix the dtype of a factory op, which otherwise would follow the default dtype of the process."""
    dtype = schema.by_name.get("dtype")
    if (
        any(isinstance(value.type, TensorType) for value in inputs)
        or dtype is None
        or attrs.get("dtype") is not None
        or len(types) != 1
        or isinstance(types[0], ScalarType)
    ):
        return attrs
    return {**attrs, "dtype": types[0].dtype}
