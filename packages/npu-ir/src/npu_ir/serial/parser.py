"""Parser of the text form of graphs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch

from npu_ir.core.literals import Literal
from npu_ir.core.node import InputKind, OpNode, Value
from npu_ir.core.types import TensorType, Type
from npu_ir.errors import GraphError, ParseError
from npu_ir.graph.graph import Graph
from npu_ir.graph.rules.edits import MAX_REGION_DEPTH
from npu_ir.ops.arguments import list_operand
from npu_ir.symbolic.constraints import RELATIONS, Constraint, Range
from npu_ir.symbolic.expressions import Dim, Expr
from npu_ir.text.data import read_data
from npu_ir.text.lexer import format_position
from npu_ir.text.operands import Nested, Operand, flatten_operands
from npu_ir.text.printer import implied_node_name
from npu_ir.text.reader import Reader, Tree, container

_KINDS = {kind.value: kind for kind in InputKind}
# What adds each kind of argument, and the clauses that may follow its type.
_ARGUMENTS: dict[InputKind, tuple[Callable[..., Value], tuple[str, ...]]] = {
    InputKind.INPUT: (Graph.add_input, ("target", "overlaps")),
    InputKind.PARAMETER: (Graph.add_parameter, ("target", "aliases")),
    InputKind.BUFFER: (Graph.add_buffer, ("target", "aliases", "non_persistent", "=")),
    InputKind.STATE: (Graph.add_state, ("target",)),
    InputKind.CONSTANT: (Graph.add_constant, ("target", "=")),
}


def parse_ir(text: str, constants: Mapping[str, torch.Tensor] | None = None) -> Graph:
    """Parse the text form of a graph.

    Args:
        text: As printed by ``str(graph)`` or ``format_ir``.
        constants: The tensors that the text has only hashes of, by target name.

    Raises:
        ParseError: The text is not a graph, or a constant is missing or differs; with line and column.
        GraphError: The graph breaks a rule of the IR.
    """
    if not isinstance(text, str):
        raise ParseError(
            f"the text of a graph is a string, not {type(text).__name__}", fix="load_ir(path) reads a file"
        )
    parser = _GraphParser(text, dict(constants or {}))
    try:
        graph = parser.graph()
        parser.finish()
    except GraphError as error:
        where = format_position(text, parser.statement.offset)
        raise ParseError(error.message, where=where, fix=error.fix) from error
    graph.check()
    return graph


def parse_type(text: str) -> Type:
    """Parse the text form of a type, such as ``f32[1, 3]@[3, 1]``; a `ParseError` if it is not one."""
    reader = Reader(text)
    type = reader.value_type()
    reader.finish()
    return type


def parse_dim(text: str) -> Dim:
    """Parse the text form of a size, such as ``2*s0+1``; a `ParseError` if it is not one."""
    reader = Reader(text)
    size: Dim = reader.expression()
    reader.finish()
    if not isinstance(size, (int, Expr)):
        raise ParseError(f"{size} is not an integer", where=text)
    return size


class _GraphParser(Reader):
    """Parser of a graph, statement by statement."""

    def __init__(self, text: str, constants: dict[str, torch.Tensor]) -> None:
        super().__init__(text)
        self._constants = constants
        self._graph = Graph()
        self._region_depth = 0
        self.statement = self.token  # first token of the current statement

    def graph(self) -> Graph:
        self.expect("graph")
        self._graph.name = self.word()
        self.expect("{")
        while self.at("symbol") or self.at("require"):
            self.statement = self.token
            self._symbol() if self.accept("symbol") else self._constraint()
        while self.token.kind == "word" and self.token.text in _KINDS:
            self.statement = self.advance()
            self._argument(_KINDS[self.statement.text])
        self.statement = self.token
        if self.accept("call"):
            self._call()
        self.statement = self.token
        if self.accept("prologue"):
            self.expect("{")
            while not self.accept("}"):
                self.statement = self.token
                self._graph.move_to_prologue(self._node())
        while not self.at("update") and not self.at("return"):
            self.statement = self.token
            self._node()
        self.statement = self.token
        while self.accept("update"):
            self._update()
            self.statement = self.token
        self.expect("return")
        self._graph.set_results(*self.tree())
        self.expect("}")
        return self._graph

    # Symbols and constraints

    def _symbol(self) -> None:
        name = self.word()
        self.expect("in")
        self.expect("[")
        low = self._symbol_bound("-inf")
        self.expect(",")
        high = self._symbol_bound("inf")
        self.expect("]")
        self._graph.add_symbol(name, Range(low, high))

    def _symbol_bound(self, infinite: str) -> int | None:
        if self.token.text != infinite:
            return self.integer()
        self.advance()
        return None

    def _constraint(self) -> None:
        self.expect("require")
        left = self.expression()
        token = self.take("mark")
        if token.text not in RELATIONS:
            raise self.fail(
                f"{token.text!r} is not a relation: expected one of {', '.join(RELATIONS)}", token
            )
        self._graph.add_constraint(Constraint(left, token.text, self.expression()))

    def value(self) -> Value:
        token = self.token
        try:
            return self._graph.value(self.name())
        except GraphError as error:
            raise self.fail(f"%{token.text} is read before it is produced", token) from error

    # Arguments

    def _argument(self, kind: InputKind) -> None:
        name = self.name()
        self.expect(":")
        type = self.value_type()
        if kind is not InputKind.INPUT and not isinstance(type, TensorType):
            raise self.fail(
                f"%{name} is a {kind.value}: its type is a tensor type, not {type}", self.statement
            )
        clauses = self._clauses(kind, type, name)
        if kind is InputKind.CONSTANT and "data" not in clauses:
            raise self.fail(f"constant %{name} has no content", self.statement)
        added = _ARGUMENTS[kind][0](self._graph, **clauses, type=type, name=name)
        self._require_name(name, added.name)
        if self._accept_clause("overlaps", kind):
            target = self.string()
            self.expect("at")
            assert added.argument is not None
            added.argument = replace(added.argument, overlaps=(target, self.integer()))

    def _clauses(self, kind: InputKind, type: Type, name: str) -> dict[str, Any]:
        """Read the clauses after the type, as keyword arguments of ``Graph.add_input`` and the like."""
        clauses: dict[str, Any] = {"target": name}
        if self._accept_clause("target", kind):
            clauses["target"] = self.string()
        if self._accept_clause("aliases", kind):
            self.expect("[")
            clauses["aliases"] = self.sequence("]", self.string)
        if self._accept_clause("non_persistent", kind):
            clauses["persistent"] = False
        if self._accept_clause("=", kind) and isinstance(type, TensorType):
            clauses["data"] = read_data(self, type, clauses["target"], self._constants)
        return clauses

    def _accept_clause(self, part: str, kind: InputKind) -> bool:
        if self.at(part) and part not in _ARGUMENTS[kind][1]:
            raise self.fail(f"{part!r} cannot follow the type of an argument of kind {kind.value!r}")
        return self.accept(part)

    def _require_name(self, wanted: str, got: str) -> None:
        if wanted != got:
            raise self.fail(f"the name {wanted!r} is used twice", self.statement)

    # Call and updates

    def _call(self) -> None:
        self.expect("(")
        args: list[Tree] = []
        kwargs: dict[str, Tree] = {}
        while not self.accept(")"):
            if self.token.kind in ("word", "string") and self.is_followed_by("="):
                token = self.token
                name = self.word()
                if name in kwargs:
                    raise self.fail(f"the argument {name!r} is given twice", token)
                self.expect("=")
                kwargs[name] = self.tree()
            elif kwargs:
                raise self.fail("a positional argument follows a keyword argument")
            else:
                args.append(self.tree())
            if not self.at(")"):
                self.expect(",")
        keyword = container("dict", list(kwargs), list(kwargs.values()))
        self._graph.set_call_structure(*container("tuple", None, [container("tuple", None, args), keyword]))

    def _update(self) -> None:
        target = self.value()
        stated = self.value_type() if self.accept(":") else None
        self.expect("=")
        if target in self._graph.updates:
            raise self.fail(f"%{target.name} is updated twice", self.statement)
        value = self.value()
        if stated not in (None, value.type):
            raise self.fail(f"%{value.name} is {value.type}, not {stated}", self.statement)
        self._graph.set_update(target, value, replaces=stated is not None)

    # Nodes

    def _node(self) -> OpNode:
        outputs = self._outputs() if self.token.kind == "value" else []
        op_type = self.word()
        self.expect("(")
        inputs, operands, attrs = self._operands()
        for name, literal in self.sequence("}", self._attr) if self.accept("{") else ():
            if name in attrs:
                raise self.fail(f"the attribute {name!r} is given twice", self.statement)
            attrs[name] = literal
        output_names = [name for name, _ in outputs]
        name = self.string() if self.accept("as") else implied_node_name(op_type, output_names)
        node = self._graph.insert(
            op_type,
            inputs,
            attrs,
            types=[type for _, type in outputs],
            operands=operands,
            regions=self._regions(),
            name=name,
            output_names=output_names,
        )
        # The graph makes duplicate names unique: a name that changed was used before.
        self._require_name(name, node.name)
        for wanted, value in zip(output_names, node.outputs, strict=True):
            self._require_name(wanted, value.name)
        return node

    def _regions(self) -> dict[str, Graph]:
        """Read the regions of the current node."""
        regions: dict[str, Graph] = {}
        # A region reads no outer values: names resolve in ``self._graph``, the innermost graph.
        outer, statement = self._graph, self.statement
        self._region_depth += 1
        if self._region_depth > MAX_REGION_DEPTH and self.at("region"):
            raise self.fail(f"regions nested deeper than {MAX_REGION_DEPTH}")
        while self.accept("region"):
            token = self.token
            argument = self._operand_name()
            if argument in regions:
                raise self.fail(f"the region {argument!r} is given twice", token)
            self.expect("=")
            self._graph = Graph()
            regions[argument] = self.read_nested(self.graph)
        self._graph, self.statement = outer, statement
        self._region_depth -= 1
        return regions

    def _outputs(self) -> list[tuple[str, Type]]:
        outputs = []
        while True:
            name = self.name()
            self.expect(":")
            outputs.append((name, self.value_type()))
            if not self.accept(","):
                self.expect("=")
                return outputs

    def _operands(self) -> tuple[list[Value], Any, dict[str, Literal]]:
        """Read a node's inputs: all with argument names, or all without."""
        if self.token.kind == "value":
            return self.sequence(")", self.value), None, {}
        return flatten_operands(self.sequence(")", self._operand))

    def _operand_name(self) -> str:
        token = self.token
        name = self.word()
        while token.kind == "word" and self.accept("["):
            name = list_operand(name, self.size())
            self.expect("]")
        return name

    def _operand(self) -> Operand:
        name = self._operand_name()
        self.expect("=")
        if self.token.kind == "value":
            return Operand(name, "", (self.value(),))
        if self.at("("):
            return Operand(name, "(", self._nested_item().items)
        mark = "?[" if self.accept("?") else "["
        self.expect("[")
        return Operand(
            name, mark, tuple(self.sequence("]", lambda: None if self.accept("None") else self.value()))
        )

    def _nested_item(self) -> Any:
        if self.token.kind == "value":
            return self.value()
        if self.accept("("):
            return Nested(tuple(self.read_nested(lambda: self.sequence(")", self._nested_item))))
        return self.literal()

    def _attr(self) -> tuple[str, Literal]:
        name = self.word()
        self.expect("=")
        return name, self.literal()
