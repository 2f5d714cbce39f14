"""Conversion of an exported program to a graph: one rule for all ATen ops, based on their schemas."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from npu_ir._torch.ops import GETITEM
from npu_ir._torch.pytree import is_tree_spec
from npu_ir.capture.default_conversion import convert_by_schema, convert_functional_call
from npu_ir.capture.direct_replacement import Replacement
from npu_ir.capture.functionalize import FunctionalProgram, functionalize
from npu_ir.capture.fx_nodes import (
    FUNCTIONAL_CALL,
    attribute_of,
    is_call_of,
    location_of,
    provenance_of,
    unwrap_index,
)
from npu_ir.capture.program_signature import (
    READS_PART,
    ProgramSignature,
    copy_data,
    part_of_wrapped,
    require_data,
    require_unwrapped,
)
from npu_ir.capture.sizes import Sizes
from npu_ir.capture.special_calls import (
    DROPPED,
    WITH_MEMORY,
    require_convertible,
    unwrap_token,
    wrapped_body,
)
from npu_ir.core.literals import Literal
from npu_ir.core.naming import unique_name
from npu_ir.core.node import Argument, InputKind, OpNode, Value
from npu_ir.core.types import TensorType, Type
from npu_ir.errors import ConversionError, GraphError, ParseError
from npu_ir.graph.graph import Graph
from npu_ir.ops.execution import flatten_results
from npu_ir.ops.schema import find_op, op_type_of
from npu_ir.plugins import plugin_manager


def convert_exported_program(program: ExportedProgram, *, name: str | None = None) -> Graph:
    """Return an exported program as a graph; the program is not changed.

    A symbolic size has the name of the ``torch.export.Dim`` it was declared with. The others are ``s0``,
    ``s1``, ..., or ``u0``, ``u1``, ... where they depend on the content of tensors.

    Args:
        program: From ``torch.export.export``, as it is or after ``run_decompositions``.
        name: Name of the graph.

    Raises:
        ConversionError: It is not an exported program; a node is of a kind that a graph cannot represent, or
            the content of a constant does not exist: names node and source line.
    """
    if not isinstance(program, ExportedProgram):
        raise ConversionError(
            f"expected an exported program, got {type(program).__name__}",
            fix="torch.export.export(model, args) makes one, or extract_ir(model, args) the graph at once",
        )
    require_data(program)
    functional = functionalize(program)
    sizes = Sizes(Graph(name or "graph"), program)
    converter = Converter(sizes, functional)
    converter.run()
    for constraint in sizes.constraints():
        converter.graph.add_constraint(constraint)
    converter.graph.check()
    converter.graph.track_origins()
    return converter.graph


class Converter:
    """A conversion in progress, which registered conversions get as an argument.

    Attributes:
        graph: The graph being built: the program's, or that of the region being converted.
        sizes: The symbols of the program.
    """

    def __init__(self, sizes: Sizes, functional: FunctionalProgram) -> None:
        self.graph = sizes.graph
        self.sizes = sizes
        self._program = functional.program
        self._replacements = functional.replacements
        self._ties = functional.ties
        self._replaced = functional.replaced
        # The current value of each node. A direct replacement of a write rebinds the mutated node to the
        # result of the functional op, so that later readers get the new content: SSA renaming.
        self._values: dict[Node, Any] = {}
        self._written: dict[Node, None] = {}  # mutated placeholders
        self._converted: dict[Node, Any] = {}
        self._module_names: dict[GraphModule, str] = {}
        # torch.export reuses the names of constants in every body; in a graph they must be unique.
        self._constant_names: dict[str, None] = {}
        self._region_constants: dict[tuple[int, int], Value] = {}
        self._conversions = plugin_manager.registry().table("conversion")

    def run(self) -> None:
        """Convert the whole program."""
        signature = ProgramSignature(self, self._program, self._ties)
        arguments = signature.add_arguments()
        self._constant_names.update(dict.fromkeys(self.graph.constants))
        self._values.update(arguments)
        signature.add_results(self._convert_nodes(self._program.graph_module))
        # The updates of direct replacements; those of a retraced program are in its signature.
        for node in self._written:
            self.graph.set_update(arguments[node], self._values[node])
        for buffer, new in self._replaced.values():
            self.graph.set_update(arguments[buffer], self._values[new], replaces=True)

    @property
    def converted(self) -> Mapping[Node, Any]:
        """The value of each converted call, or its values nested as the results of the FX node are."""
        return MappingProxyType(self._converted)

    # For registered conversions

    def value(self, argument: Any) -> Any:
        """Return an FX argument in plain containers, with every FX node replaced by its value."""
        return _to_python_containers(torch.fx.map_arg(argument, self._values.__getitem__))

    def types(self, node: Node) -> list[Type]:
        """Return the types of the results of an FX node, flat; refuse a result without a type."""
        return [self.type(node, leaf) for leaf in flatten_results(node.meta.get("val"))]

    def type(self, node: Node, leaf: Any) -> Type:
        """Return the type of one result of an FX node, given its metadata; refuse one without a type."""
        try:
            return self.sizes.type_of(leaf)
        except ParseError as error:
            raise ConversionError(error.message, where=location_of(node)) from error

    def insert(
        self,
        node: Node,
        op_type: str,
        inputs: Sequence[Value],
        attrs: dict[str, Literal],
        *,
        types: Type | Sequence[Type] | None = None,
        operands: Sequence[str] | None = None,
        regions: Mapping[str, Graph] | None = None,
        name: str | None = None,
        output_names: Sequence[str] | None = None,
    ) -> OpNode:
        """Append a graph node with the provenance and, by default, the types of an FX node."""
        try:
            return self.graph.insert(
                op_type,
                inputs,
                attrs,
                types=self.types(node) if types is None else types,
                operands=operands,
                regions=regions,
                name=name or node.name,
                output_names=output_names,
                provenance=provenance_of(node),
            )
        except GraphError as error:
            raise ConversionError(error.message, where=location_of(node), fix=error.fix) from error

    def region(self, module: GraphModule) -> Graph:
        """Return the graph of a body of a control-flow operator, to be used as a region of a node."""
        around, self.graph = self.graph, Graph(self._module_names[module])
        try:
            self.graph.set_outputs(self.convert_module(module))
            return self.graph
        finally:
            self.graph = around

    def convert_module(self, module: GraphModule, arguments: Sequence[Argument] | None = None) -> Any:
        """Convert an FX graph and return its results; its placeholders are ``arguments``, or else inputs."""
        placeholders = module.graph.find_nodes(op="placeholder")
        graph_arguments = arguments or [Argument(InputKind.INPUT, node.name) for node in placeholders]
        for node, argument in zip(placeholders, graph_arguments, strict=True):
            self._values[node] = self.add_argument(argument, self.type(node, node.meta.get("val")))
        return self._convert_nodes(module)

    def add_argument(self, argument: Argument, type: Type) -> Value:
        """Add an argument to the graph; a constant gets the type of its data."""
        if argument.kind is InputKind.INPUT:
            return self.graph.add_input(argument.target, type)
        assert isinstance(type, TensorType), f"{argument.target} is a {argument.kind.value}"
        if argument.kind is InputKind.PARAMETER:
            return self.graph.add_parameter(argument.target, type, aliases=argument.aliases)
        if argument.kind is InputKind.STATE:
            return self.graph.add_state(argument.target, type)
        if argument.kind is InputKind.CONSTANT:
            assert argument.data is not None, f"{argument.target} was checked before"
            return self.graph.add_constant(argument.target, argument.data)
        is_persistent, data = argument.persistent, argument.data
        return self.graph.add_buffer(
            argument.target, type, aliases=argument.aliases, persistent=is_persistent, data=data
        )

    def nest(self, node: Node, values: Sequence[Value | None]) -> Any:
        """Return flat values nested as the FX node's results are."""
        return _nest(node.meta.get("val"), iter(values))

    # Nodes

    def _convert_nodes(self, module: GraphModule) -> Any:
        """Convert the nodes of one FX graph; return the argument of its output node."""
        for node in module.graph.nodes:
            if node.op == "call_function":
                self._values[node] = self._converted[node] = self._convert(node)
            elif node.op == "get_attr":
                self._values[node] = self._read_attribute(node, module)
            elif node.op == "output":
                return self.value(node.args[0])
        raise AssertionError("an FX graph ends with an output node")

    def _convert(self, node: Node) -> Any:
        name = op_type_of(node.target)  # type: ignore[arg-type]
        if name in self._conversions:
            return self.nest(node, self._convert_by_plugin(node, name))
        if node.target is GETITEM:
            source, key = node.args
            values = self._values[source] if isinstance(source, Node) else self.value(source)
            return values[key]  # not copied for each of many results
        if name in DROPPED or node in self._replaced:
            return None
        if name == READS_PART:
            return part_of_wrapped(node, self.value(node.args[0]))
        return self._convert_call(node, name)

    def _convert_call(self, node: Node, name: str) -> Any:
        """Convert a call that computes something."""
        wrapped = wrapped_body(name, self.value(node.args))
        if wrapped is not None:
            body, operands = wrapped
            self._values.update(zip(body.graph.find_nodes(op="placeholder"), operands, strict=True))
            return self._convert_nodes(body)
        replacement = self._replacements.get(node)
        if replacement is not None:
            return self._convert_replacement(replacement)
        if is_call_of(node, FUNCTIONAL_CALL):
            return convert_functional_call(self, node)
        plain = unwrap_token(name, node)
        if plain is not None:
            results = self._convert(plain)
            return [None, *(results if isinstance(results, list) else [results])]
        indexing = unwrap_index(node)
        if indexing is not None:
            return self._convert(indexing)
        require_convertible(node, name)
        require_unwrapped(node, [self._values.get(item) for item in node.all_input_nodes])
        op = find_op(WITH_MEMORY[name]) if name in WITH_MEMORY else node.target
        return convert_by_schema(self, node, op)  # type: ignore[arg-type]

    def _convert_replacement(self, replacement: Replacement) -> Any:
        """Convert the functional op that replaces an op that writes."""
        results = convert_by_schema(self, replacement.call, replacement.op)
        for target, position in replacement.written.items():
            self._values[target] = results if position is None else results[position]
            if target.op == "placeholder":
                self._written[target] = None
        return results if replacement.own is None else results[replacement.own]

    def _convert_by_plugin(self, node: Node, op_type: str) -> list[Value]:
        entry = self._conversions[op_type]
        try:
            result = entry.function(self, node)
        except Exception as error:
            raise ConversionError(
                f"the conversion of {op_type} by {entry.origin} failed: {type(error).__name__}: {error}",
                where=location_of(node),
            ) from error
        values = list(result) if isinstance(result, (list, tuple)) else [result]
        expected = self.types(node)
        if not all(isinstance(value, Value) for value in values) or len(values) != len(expected):
            raise ConversionError(
                f"the conversion of {op_type} by {entry.origin} returned {result!r}",
                where=location_of(node),
                fix=f"return {len(expected)} value(s) of converter.graph",
            )
        return values

    def _read_attribute(self, node: Node, module: GraphModule) -> Any:
        """Return the attribute that an FX node reads from its module: another FX graph, or a tensor."""
        attribute = attribute_of(node, module)
        if is_tree_spec(attribute):
            return attribute
        if isinstance(attribute, GraphModule):
            self._module_names[attribute] = str(node.target)
            return attribute
        data = copy_data(attribute)
        if data is None:
            raise ConversionError(
                f"the graph reads {node.target!r}, which is not a tensor with data",
                where=location_of(node),
                fix="compute with tensors alone; random numbers of the default generator, without generator=",
            )
        constant = self._region_constants.get((id(self.graph), id(attribute)))
        if constant is None:
            name = unique_name(self._constant_names, {}, str(node.target))
            self._constant_names[name] = None
            constant = self._region_constants[id(self.graph), id(attribute)] = self.graph.add_constant(
                name, data
            )
        return constant


def _to_python_containers(argument: Any) -> Any:
    """Return an argument with FX's own container types replaced by Python's."""
    if isinstance(argument, (list, tuple)) and not hasattr(argument, "_fields"):
        return (list if isinstance(argument, list) else tuple)(map(_to_python_containers, argument))
    if isinstance(argument, dict):
        return {key: _to_python_containers(item) for key, item in argument.items()}
    return argument


def _nest(result: Any, leaves: Iterator[Any]) -> Any:
    if isinstance(result, (tuple, list)):
        return [_nest(part, leaves) for part in result]
    return next(leaves)
