"""From an exported program to a graph: every FX node by the same rule, none by its own code."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, OutputKind, TensorArgument
from torch.export.graph_signature import InputKind as ExportInputKind
from torch.fx import Node

from npu_ir import _torch, plugins
from npu_ir.capture.functionalize import GRAD_REGION, FunctionalProgram, functionalize
from npu_ir.capture.promotion import needed_cast
from npu_ir.capture.provenance import place, provenance_of
from npu_ir.errors import ConversionError, GraphError, ParseError
from npu_ir.graph import Graph
from npu_ir.literals import Literal
from npu_ir.node import OpNode, Value
from npu_ir.ops.arguments import FlatArguments, flatten_arguments
from npu_ir.ops.schema import OpSchema, op_type_of, schema_of
from npu_ir.structure import Structure, from_torch_spec
from npu_ir.types import ScalarType, TensorType, Type, type_of

# Checks of dtype and device that torch.export leaves behind casts. Every value of a graph has its
# type, and executing checks it, so they say nothing more.
_DROPPED = frozenset({torch.ops.aten._assert_tensor_metadata.default})


def convert_exported_program(program: ExportedProgram, *, name: str | None = None) -> Graph:
    """Return an exported program as a graph; the program is not changed.

    Args:
        program: From ``torch.export.export``, as it is or after ``run_decompositions``.
        name: Name of the graph.

    Raises:
        ConversionError: A size is symbolic, an op is a control-flow op or no operator at all, or the
            content of a constant does not exist; names node and source line.
    """
    _require_data(program)
    functional = functionalize(program)
    converter = Converter(Graph(name or "graph"), functional)
    converter.run()
    converter.graph.check()
    return converter.graph


class Converter:
    """One conversion in progress; what a registered conversion works with.

    Attributes:
        graph: The graph being built.
    """

    def __init__(self, graph: Graph, functional: FunctionalProgram) -> None:
        self.graph = graph
        self._program = functional.program
        self._replacements = functional.replacements
        self._ties = functional.ties
        self._values: dict[Node, Any] = {}  # what a later reader of the node gets
        self._sources: dict[tuple[ExportInputKind, str], Any] = {}
        self._converted: dict[Node, Any] = {}
        self._conversions = plugins.registry().table("conversion")

    def run(self) -> None:
        """Convert the whole program."""
        placeholders = {node.name: node for node in self._program.graph.nodes if node.op == "placeholder"}
        leaves = self._add_arguments(placeholders)
        call = _structure(self._program.call_spec.in_spec, "the arguments of the model")
        self.graph.set_call_structure(call, leaves)
        results = self._convert_nodes(self._program.graph_module)
        self._add_results(results)

    @property
    def converted(self) -> Mapping[Node, Any]:
        """What each FX node that calls something became: a value, or values nested as its results are."""
        return MappingProxyType(self._converted)

    # For registered conversions

    def value(self, argument: Any) -> Any:
        """Return an FX argument with every FX node in it replaced by what stands for it."""
        return torch.fx.map_arg(argument, self._values.__getitem__)

    def types(self, node: Node) -> list[Type]:
        """Return the types of what an FX node returns, flat.

        Raises:
            ConversionError: A size is symbolic, or the node returns something without a type.
        """
        return [self._type(node, leaf) for leaf in _flat(node.meta.get("val"))]

    def insert(
        self,
        node: Node,
        op_type: str,
        inputs: Sequence[Value],
        attrs: dict[str, Literal],
        *,
        types: Type | Sequence[Type] | None = None,
        operands: Sequence[str] | None = None,
        name: str | None = None,
        output_names: Sequence[str] | None = None,
    ) -> OpNode:
        """Append a graph node that comes from an FX node, with its provenance and, by default, its types."""
        try:
            return self.graph.insert(
                op_type,
                inputs,
                attrs,
                types=self.types(node) if types is None else types,
                operands=operands,
                name=name or node.name,
                output_names=output_names,
                provenance=provenance_of(node),
            )
        except GraphError as error:
            raise ConversionError(error.message, where=place(node), fix=error.fix) from error

    # Nodes

    def _convert_nodes(self, module: torch.fx.GraphModule) -> Any:
        """Convert the nodes of one FX graph; return what its output node returns."""
        for node in module.graph.nodes:
            if node.op == "call_function":
                self._values[node] = self._converted[node] = self._convert(node, module)
            elif node.op == "output":
                return self.value(node.args[0])
        raise AssertionError("an FX graph ends with an output node")

    def _convert(self, node: Node, module: torch.fx.GraphModule) -> Any:
        op_type = _op_type(node)
        if op_type in self._conversions:
            return self._nested(node, self._registered_conversion(node, op_type))
        if node.target is operator.getitem:
            return self.value(node.args[0])[node.args[1]]
        if getattr(node.target, "__name__", "") == GRAD_REGION:
            return self._inline(node, module)
        if node in self._replacements:
            functional, written = self._replacements[node]
            self._values[written] = _default_conversion(self, node, functional)
            return self._values[written]
        if _torch.is_functional_call(node.target):
            return _functional_call_conversion(self, node)
        if not isinstance(node.target, _torch.OpOverload):
            raise _unsupported(node)
        return None if node.target in _DROPPED else _default_conversion(self, node, node.target)

    def _registered_conversion(self, node: Node, op_type: str) -> list[Value]:
        entry = self._conversions[op_type]
        try:
            result = entry.function(self, node)
        except Exception as error:
            raise ConversionError(
                f"the conversion of {op_type} by {entry.origin} failed: {type(error).__name__}: {error}",
                where=place(node),
            ) from error
        values = list(result) if isinstance(result, (list, tuple)) else [result]
        expected = self.types(node)
        if not all(isinstance(value, Value) for value in values) or len(values) != len(expected):
            raise ConversionError(
                f"the conversion of {op_type} by {entry.origin} returned {result!r}",
                where=place(node),
                fix=f"return {len(expected)} value(s) of converter.graph",
            )
        return values

    def _inline(self, node: Node, module: torch.fx.GraphModule) -> Any:
        """Convert a ``no_grad`` region in place: a graph computes values, never gradients."""
        _, body, *operands = node.args
        assert isinstance(body, Node)
        region = module.get_submodule(str(body.target))
        assert isinstance(region, torch.fx.GraphModule)
        inner = [item for item in region.graph.nodes if item.op == "placeholder"]
        self._values.update(zip(inner, self.value(operands), strict=True))
        return self._convert_nodes(region)

    def _nested(self, node: Node, values: Sequence[Value]) -> Any:
        """Return flat values nested as the FX node's results are."""
        return _nest(node.meta.get("val"), iter(values))

    def _type(self, node: Node, leaf: Any) -> Type:
        if isinstance(leaf, torch.Tensor):
            return self._tensor_type(node, leaf)
        if isinstance(leaf, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            raise _symbolic(node, f"returns the number {leaf}, which is known only at run time")
        try:
            return type_of(leaf)
        except ParseError as error:
            raise ConversionError(error.message, where=place(node)) from error

    def _tensor_type(self, node: Node, tensor: torch.Tensor) -> TensorType:
        if tensor.layout is not torch.strided:
            raise ConversionError(
                f"{node.target} returns a tensor of layout {tensor.layout}",
                where=place(node),
                fix="convert sparse tensors to dense before and after (to_dense)",
            )
        for dim, size in enumerate(tensor.shape):
            if isinstance(size, torch.SymInt):
                raise _symbolic(
                    node, f"returns a tensor of shape {list(tensor.shape)}: dimension {dim} is symbolic"
                )
        return TensorType.of(tensor)

    # Signature

    def _add_arguments(self, placeholders: dict[str, Node]) -> list[Any]:
        """Add what comes from outside; return the leaves of the call: inputs and literals."""
        specs = self._program.graph_signature.input_specs
        aliases: dict[str, list[str]] = {}
        for spec in specs:
            first = self._ties.get(spec.arg.name)
            if first is not None and spec.kind is not ExportInputKind.USER_INPUT:
                aliases.setdefault(first, []).append(str(spec.target))
        leaves = []
        for spec in specs:
            node = placeholders[spec.arg.name]
            if spec.arg.name in self._ties:
                self._values[node] = self._values[placeholders[self._ties[spec.arg.name]]]
            else:
                self._values[node] = self._add_argument(spec, node, aliases.get(spec.arg.name, []))
            self._sources[spec.kind, spec.target or spec.arg.name] = self._values[node]
            if spec.kind is ExportInputKind.USER_INPUT:
                leaves.append(self._values[node])
        return leaves

    def _add_argument(self, spec: Any, node: Node, aliases: list[str]) -> Value | Literal:
        if isinstance(spec.arg, ConstantArgument):
            return spec.arg.value
        if not isinstance(spec.arg, TensorArgument):
            raise ConversionError(
                f"input {node.name!r} is a {type(spec.arg).__name__}",
                where=place(node),
                fix="pass tensors or Python scalars",
            )
        tensor_type = self._tensor_type(node, node.meta["val"])
        if spec.kind is ExportInputKind.USER_INPUT:
            return self.graph.add_input(node.name, tensor_type)
        if spec.kind is ExportInputKind.PARAMETER:
            return self.graph.add_parameter(spec.target, tensor_type, aliases=aliases)
        if spec.kind is ExportInputKind.BUFFER:
            data = None if spec.persistent else _content(self._program.constants.get(spec.target))
            return self.graph.add_buffer(
                spec.target, tensor_type, aliases=aliases, persistent=spec.persistent, data=data
            )
        if spec.kind is ExportInputKind.CONSTANT_TENSOR:
            data = _content(self._program.constants.get(spec.target))
            assert data is not None, f"{spec.target} was checked before"
            return self.graph.add_constant(spec.target, data)
        raise ConversionError(
            f"input {node.name!r} is of kind {spec.kind.name}",
            where=place(node),
            fix="pass tensors or Python scalars",
        )

    def _add_results(self, results: Sequence[Any]) -> None:
        leaves = []
        for spec, result in zip(self._program.graph_signature.output_specs, results, strict=True):
            if spec.kind is OutputKind.USER_OUTPUT:
                leaves.append(result)
            elif spec.kind in _UPDATES:
                self.graph.set_update(self._sources[_UPDATES[spec.kind], str(spec.target)], result)
            else:
                raise ConversionError(f"the program has an output of kind {spec.kind.name}")
        out_spec = self._program.call_spec.out_spec
        self.graph.set_results(_structure(out_spec, "the results of the model"), leaves)


_UPDATES = {
    OutputKind.BUFFER_MUTATION: ExportInputKind.BUFFER,
    OutputKind.USER_INPUT_MUTATION: ExportInputKind.USER_INPUT,
    OutputKind.PARAMETER_MUTATION: ExportInputKind.PARAMETER,
}


def _default_conversion(converter: Converter, node: Node, op: _torch.OpOverload) -> Any:
    """Append the graph node for an FX node that calls ``op``; return its values, nested as FX has them."""
    schema = schema_of(op)
    flat = _flattened(converter, node, schema, node.args)
    types = _with_kept_dtypes(schema, flat, converter.types(node))
    inputs = _cast(converter, node, flat.inputs, needed_cast(node, op, types))
    name = _node_name(node, schema)
    inserted = converter.insert(
        node,
        op_type_of(op),
        inputs,
        _with_dtype(schema, flat.inputs, flat.attrs, types),
        types=types,
        operands=flat.operands,
        name=name,
        output_names=_output_names(name, schema, len(types)),
    )
    return converter._nested(node, inserted.outputs)


def _cast(
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


def _functional_call_conversion(converter: Converter, node: Node) -> Any:
    """Append the graph node for a call of an op on copies of what it writes: it returns these copies too."""
    op, *args = node.args
    assert isinstance(op, _torch.OpOverload)
    schema = schema_of(op)
    flat = _flattened(converter, node, schema, args)
    results = node.meta["val"]  # None stands for no result, or for an optional tensor that is not given
    inserted = converter.insert(
        node,
        op_type_of(op),
        flat.inputs,
        flat.attrs,
        types=[converter._type(node, leaf) for leaf in _flat(results) if leaf is not None],
        operands=flat.operands,
        name=op._opname,
    )
    return _nest_present(results, iter(inserted.outputs))


def _flattened(converter: Converter, node: Node, schema: OpSchema, args: Sequence[Any]) -> FlatArguments:
    try:
        return flatten_arguments(schema, converter.value(args), converter.value(node.kwargs), _is_value)
    except GraphError as error:
        raise ConversionError(error.message, where=place(node), fix=error.fix) from error


def _with_kept_dtypes(schema: OpSchema, flat: FlatArguments, types: list[Type]) -> list[Type]:
    """Give the new content of an argument (``running_mean_out``) the argument's dtype.

    The FakeTensors of half-precision running statistics are float32, the op's results are not (torch 2.13).
    """
    if len(schema.return_names) != len(types):
        return types
    given = {f"{name}_out": value.type for name, value in zip(flat.operands, flat.inputs, strict=True)}
    kept = [given.get(name) for name in schema.return_names]
    return [
        dataclasses.replace(type, dtype=old.dtype)
        if isinstance(old, TensorType) and isinstance(type, TensorType)
        else type
        for old, type in zip(kept, types, strict=True)
    ]


def _structure(spec: Any, where: str) -> Structure:
    try:
        return from_torch_spec(spec)
    except GraphError as error:
        raise ConversionError(error.message, where=where, fix=error.fix) from error


def _is_value(argument: Any) -> bool:
    return isinstance(argument, Value)


def _node_name(node: Node, schema: OpSchema) -> str:
    """Return the FX node's name; ``relu__1`` becomes ``relu_1`` where relu took relu_'s place."""
    if isinstance(node.target, _torch.OpOverload) and node.target is not schema.op:
        written, functional = node.target._opname, schema.op._opname
        if node.name.startswith(written):
            return functional + node.name[len(written) :]
    return node.name


def _output_names(name: str, schema: OpSchema, count: int) -> list[str] | None:
    names = schema.return_names
    if count < 2 or len(names) != count or not all(names):
        return None
    return [f"{name}.{result}" for result in names]


def _with_dtype(
    schema: OpSchema, inputs: Sequence[Value], attrs: dict[str, Literal], types: list[Type]
) -> dict[str, Literal]:
    """Pin the dtype of a tensor made from nothing: left open, it would follow the process's default."""
    dtype = schema.by_name.get("dtype")
    if (
        inputs
        or dtype is None
        or attrs.get("dtype") is not None
        or len(types) != 1
        or isinstance(types[0], ScalarType)
    ):
        return attrs
    return {**attrs, "dtype": types[0].dtype}


def _op_type(node: Node) -> str:
    return op_type_of(node.target) if isinstance(node.target, _torch.OpOverload) else str(node.target)


def _flat(result: Any) -> list[Any]:
    """Return the leaves of what an op returns; an op that returns nothing has none."""
    if isinstance(result, (tuple, list)):
        return [leaf for part in result for leaf in _flat(part)]
    return [result]


def _nest(result: Any, leaves: Any) -> Any:
    if isinstance(result, (tuple, list)):
        return [_nest(part, leaves) for part in result]
    return next(leaves)


def _nest_present(result: Any, leaves: Any) -> Any:
    if isinstance(result, (tuple, list)):
        return [_nest_present(part, leaves) for part in result]
    return None if result is None else next(leaves)


def _content(tensor: Any) -> torch.Tensor | None:
    """Return a tensor's data on its own memory, or None where there is none."""
    return tensor.detach().clone() if _has_content(tensor) else None


def _has_content(tensor: Any) -> bool:
    return isinstance(tensor, torch.Tensor) and not tensor.is_meta and not _torch.is_fake(tensor)


def _require_data(program: ExportedProgram) -> None:
    """Refuse constants without content before PyTorch sees them: tracing them again crashes it (torch 2.13)."""
    for spec in program.graph_signature.input_specs:
        if spec.kind is not ExportInputKind.CONSTANT_TENSOR:
            continue
        tensor = program.constants.get(str(spec.target))
        if isinstance(tensor, torch.Tensor) and _torch.is_transformed(tensor):
            raise ConversionError(
                f"torch.export takes a tensor that torch.func differentiates for a constant: {spec.target}",
                fix="use torch.autograd.grad; of torch.func only vmap can be captured",
            )
        if not _has_content(tensor):
            raise lost_data_error(str(spec.target))


def lost_data_error(target: str) -> ConversionError:
    """Return the error for a tensor that is part of the program but whose content does not exist."""
    return ConversionError(
        f"the content of the tensor {target!r} is part of the program, but it is on 'meta' or fake: there is no data",
        fix=f"self.register_buffer({target.rpartition('.')[2]!r}, ...) makes it a buffer that comes with the weights",
    )


def _symbolic(node: Node, problem: str) -> ConversionError:
    return ConversionError(
        f"{node.target if node.op == 'call_function' else node.name} {problem}",
        where=place(node),
        fix="export with fixed sizes, and replace ops whose result size depends on data (boolean masks, nonzero, "
        ".item()) by ones of fixed size (torch.where, masked_fill)",
    )


def _unsupported(node: Node) -> ConversionError:
    name = getattr(node.target, "__name__", str(node.target))
    if any(
        isinstance(item.meta.get("val"), (torch.SymInt, torch.SymFloat, torch.SymBool))
        for item in node.all_input_nodes
    ):
        return _symbolic(node, "computes with a number that is known only at run time")
    if isinstance(node.target, _torch.HigherOrderOperator):
        return ConversionError(
            f"the control-flow op {name} has no place in a graph yet",
            where=place(node),
            fix=f"replace it by tensor ops (torch.where) or unroll it, or register_conversion({_op_type(node)!r})",
        )
    return ConversionError(
        f"{name} is not an operator of torch.ops",
        where=place(node),
        fix=f"register_conversion({_op_type(node)!r})",
    )
