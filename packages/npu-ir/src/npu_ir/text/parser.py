"""Reading a graph from its text form."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import torch

from npu_ir.errors import GraphError, ParseError
from npu_ir.graph import Graph
from npu_ir.literals import LAYOUTS, MEMORY_FORMATS, Literal
from npu_ir.node import InputKind, Value
from npu_ir.structure import LEAF_STRUCTURE, Structure
from npu_ir.text.data import read_data
from npu_ir.text.lexer import Token, position, tokens
from npu_ir.text.operands import Operand, ungroup
from npu_ir.text.printer import implied_node_name
from npu_ir.types import (
    SCALAR_KINDS,
    ScalarType,
    TensorType,
    Type,
    is_dtype_name,
    memory_format_strides,
    parse_dtype,
)

_WORDS: dict[str, Literal] = {"None": None, "True": True, "False": False, **LAYOUTS, **MEMORY_FORMATS}
_MAX_DEPTH = 200


def parse_ir(text: str, constants: Mapping[str, torch.Tensor] | None = None) -> Graph:
    """Return the graph that ``text`` is the text form of.

    Args:
        text: As printed by ``str(graph)`` or ``format_ir``.
        constants: The tensors that are too large to stand in the text, by target name.

    Raises:
        ParseError: The text is no graph, or a constant is missing or another one; with line and column.
        GraphError: The graph breaks a rule of the IR.
    """
    parser = _Parser(text, dict(constants or {}))
    try:
        graph = parser.graph()
    except GraphError as error:
        raise ParseError(error.message, where=position(text, parser.token.offset), fix=error.fix) from error
    graph.check()
    return graph


def parse_type(text: str) -> Type:
    """Return the type that ``text`` is the text form of, such as ``f32[1, 3]@[3, 1]``.

    Raises:
        ParseError: It is none.
    """
    parser = _Parser(text, {})
    type = parser.value_type()
    parser.expect("end")
    return type


class _Parser:
    """A recursive-descent parser: one method per construct, one token of lookahead."""

    def __init__(self, text: str, constants: dict[str, torch.Tensor]) -> None:
        self._text = text
        self._tokens = tokens(text)
        self._constants = constants
        self._graph = Graph()
        self._depth = 0
        self.token = next(self._tokens)

    # Tokens

    def fail(self, message: str, *, fix: str | None = None) -> ParseError:
        return ParseError(message, where=position(self._text, self.token.offset), fix=fix)

    def advance(self) -> Token:
        token = self.token
        if token.kind != "end":
            self.token = next(self._tokens)
        return token

    def at(self, text: str) -> bool:
        return self.token.kind in ("mark", "word") and self.token.text == text

    def accept(self, text: str) -> bool:
        if not self.at(text):
            return False
        self.advance()
        return True

    def expect(self, *wanted: str) -> Token:
        if self.token.kind in wanted or (self.token.kind in ("mark", "word") and self.token.text in wanted):
            return self.advance()
        raise self.fail(f"expected {' or '.join(wanted)}, got {self.token.text or 'the end of the text'!r}")

    def word(self) -> str:
        token = self.expect("word", "string")
        return self._unquoted(token.text) if token.kind == "string" else token.text

    def string(self) -> str:
        return self._unquoted(self.expect("string").text)

    def _unquoted(self, text: str) -> str:
        try:
            return str(json.loads(text))
        except ValueError as error:
            raise self.fail(f"{text} is not a string") from error

    def name(self) -> str:
        text = self.expect("value").text
        return self._unquoted(text) if text.startswith('"') else text

    def value(self) -> Value:
        at = self.token
        name = self.name()
        try:
            return self._graph.value(name)
        except GraphError as error:
            raise ParseError(f"%{name} is read before it is produced", where=position(self._text, at.offset)) from error

    def sequence(self, close: str, item: Any) -> list[Any]:
        items = []
        while not self.accept(close):
            items.append(item())
            if not self.at(close):
                self.expect(",")
        return items

    # Types and literals

    def value_type(self) -> Type:
        word = self.expect("word").text
        if not self.accept("["):
            if word not in SCALAR_KINDS:
                raise self.fail(f"{word!r} is no type")
            return ScalarType(word)  # type: ignore[arg-type]
        dtype = parse_dtype(word)
        shape = tuple(self.sequence("]", self.integer))
        if not self.accept("@"):
            return TensorType(shape, dtype)
        if self.accept("["):
            return TensorType(shape, dtype, tuple(self.sequence("]", self.integer)))
        memory_format = MEMORY_FORMATS.get(self.expect("word").text)
        if memory_format is None:
            raise self.fail("expected strides or a memory format behind '@'")
        return TensorType(shape, dtype, memory_format_strides(shape, memory_format))

    def integer(self) -> int:
        number = self.number()
        if not isinstance(number, int):
            raise self.fail(f"expected an integer, got {number}")
        return number

    def number(self) -> int | float:
        text = self.expect("number").text
        try:
            return int(text) if text.lstrip("-").isdigit() else float(text)
        except ValueError as error:
            raise self.fail(f"{text[:40]}... is too long a number") from error

    def literal(self) -> Literal:
        if self.token.kind == "number":
            return self.number()
        if self.token.kind == "string":
            return self.string()
        if self.accept("["):
            return self.nested(lambda: self.sequence("]", self.literal))
        word = self.expect("word", "literal").text
        if word in ("complex", "device"):
            return self.constructed(word)
        if word in _WORDS:
            return _WORDS[word]
        if is_dtype_name(word):
            return parse_dtype(word)
        if word in ("inf", "nan"):
            return float(word)
        raise self.fail(f"{word!r} is no literal")

    def constructed(self, word: str) -> Literal:
        self.expect("(")
        parts = self.sequence(")", self.literal)
        try:
            return complex(*parts) if word == "complex" else torch.device(*parts)
        except (TypeError, RuntimeError) as error:
            raise self.fail(f"{word}({', '.join(map(str, parts))}) is no {word}") from error

    def nested(self, parse: Any) -> Any:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise self.fail(f"nested deeper than {_MAX_DEPTH}")
        result = parse()
        self._depth -= 1
        return result

    # Structures

    def tree(self) -> tuple[Structure, list[Any]]:
        """Return the structure of nested containers and the leaves in it."""
        if self.token.kind == "value":
            return LEAF_STRUCTURE, [self.value()]
        if self.accept("("):
            return self.nested(self.tuple_tree)  # type: ignore[no-any-return]
        if self.accept("["):
            return self._container("list", None, self.nested(lambda: self.sequence("]", self.tree)))
        if self.accept("{"):
            pairs = self.nested(lambda: self.sequence("}", self.pair))
            return self._container("dict", [key for key, _ in pairs], [child for _, child in pairs])
        if self.accept("@"):
            return self.nested(self.other_container)  # type: ignore[no-any-return]
        return LEAF_STRUCTURE, [self.literal()]

    def tuple_tree(self) -> tuple[Structure, list[Any]]:
        return self._container("tuple", None, self.sequence(")", self.tree))

    def pair(self) -> tuple[Literal, tuple[Structure, list[Any]]]:
        key = self.literal()
        self.expect(":")
        return key, self.tree()

    def other_container(self) -> tuple[Structure, list[Any]]:
        kind = self.string()
        self.expect("(")
        context = self.literal()
        self.accept(",")
        children = self.sequence(")", self.tree)
        return self._container(kind, context, children)

    def _container(self, kind: str, context: Literal, parts: list[tuple[Structure, list[Any]]]) -> tuple[Structure, list[Any]]:
        structure = Structure(kind, context, tuple(child for child, _ in parts))
        return structure, [leaf for _, leaves in parts for leaf in leaves]

    # The graph

    def graph(self) -> Graph:
        self.expect("graph")
        self._graph.name = self.word()
        self.expect("{")
        kinds = {kind.value: kind for kind in InputKind}
        while self.token.kind == "word" and self.token.text in kinds:
            self.argument(kinds[self.advance().text])
        if self.accept("call"):
            self.call()
        while not self.at("update") and not self.at("return"):
            self.node()
        while self.accept("update"):
            target = self.value()
            self.expect("=")
            self._graph.set_update(target, self.value())
        self.expect("return")
        self._graph.set_results(*self.tree())
        self.expect("}")
        self.expect("end")
        return self._graph

    def argument(self, kind: InputKind) -> None:
        name = self.name()
        self.expect(":")
        type = self.value_type()
        target = self.string() if self.accept("target") else name
        aliases = self.literal() if self.accept("aliases") else []
        persistent = not self.accept("non_persistent")
        data = read_data(self, type, target, self._constants) if self.accept("=") else None
        graph = self._graph
        if kind is InputKind.INPUT:
            added = graph.add_input(name, type)
        elif not isinstance(type, TensorType):
            raise self.fail(f"%{name} is a {kind.value}: its type is a tensor type, not {type}")
        elif kind is InputKind.PARAMETER:
            added = graph.add_parameter(target, type, aliases=aliases, name=name)
        elif kind is InputKind.BUFFER:
            added = graph.add_buffer(target, type, aliases=aliases, persistent=persistent, data=data, name=name)
        elif data is None:
            raise self.fail(f"constant %{name} has no content")
        else:
            added = graph.add_constant(target, data, name=name)
        self._require_name(name, added.name)

    def _require_name(self, wanted: str, got: str) -> None:
        if wanted != got:
            raise self.fail(f"the name {wanted!r} is used twice")

    def call(self) -> None:
        self.expect("(")
        args: list[tuple[Structure, list[Any]]] = []
        kwargs: list[tuple[str, tuple[Structure, list[Any]]]] = []
        while not self.accept(")"):
            self.call_argument(args, kwargs)
            if not self.at(")"):
                self.expect(",")
        names = [name for name, _ in kwargs]
        positional = self._container("tuple", None, args)
        keyword = self._container("dict", names, [tree for _, tree in kwargs])
        self._graph.set_call_structure(*self._container("tuple", None, [positional, keyword]))

    def call_argument(self, args: list[Any], kwargs: list[Any]) -> None:
        """Read ``tree`` or ``name=tree``; a word or string is a name only in front of '='."""
        if self.token.kind not in ("word", "string"):
            args.append(self.tree())
            return
        start = self.token
        leaf: Any = self.word() if self._next_is_equals(start) else None
        if leaf is None:
            args.append(self.tree())
            return
        self.expect("=")
        kwargs.append((leaf, self.tree()))

    def _next_is_equals(self, token: Token) -> bool:
        behind = self._text[token.offset + len(token.text) :]
        return behind.lstrip().startswith("=")

    def node(self) -> None:
        outputs: list[tuple[str, Type]] = []
        while self.token.kind == "value":
            name = self.name()
            self.expect(":")
            outputs.append((name, self.value_type()))
            self.expect("=" if not self.at(",") else ",")
        op_type = self.word()
        self.expect("(")
        inputs, operands, attrs = self.operands()
        if self.accept("{"):
            attrs |= dict(self.sequence("}", self.attr))
        output_names = [name for name, _ in outputs]
        name = self.string() if self.accept("as") else implied_node_name(op_type, output_names)
        node = self._graph.insert(
            op_type,
            inputs,
            attrs,
            types=[type for _, type in outputs],
            operands=operands,
            name=name,
            output_names=output_names,
        )
        self._require_name(name, node.name)
        for wanted, value in zip(output_names, node.outputs, strict=True):
            self._require_name(wanted, value.name)

    def operands(self) -> tuple[list[Value], Any, dict[str, Literal]]:
        """Read a node's inputs: all with the argument they fill, or none with it."""
        if self.token.kind == "value":
            return self.sequence(")", self.value), None, {}
        return ungroup(self.sequence(")", self.operand))

    def operand(self) -> Operand:
        name = self.word()
        if self.accept("["):
            name = f"{name}[{self.integer()}]"
            self.expect("]")
        self.expect("=")
        if self.token.kind == "value":
            return Operand(name, "", (self.value(),))
        mark = "?[" if self.accept("?") else "["
        self.expect("[")
        return Operand(name, mark, tuple(self.sequence("]", self.list_item)))

    def list_item(self) -> Value | None:
        return None if self.accept("None") else self.value()

    def attr(self) -> tuple[str, Literal]:
        name = self.word()
        self.expect("=")
        return name, self.literal()
