"""Reader of the elements of the text form: names, types, expressions, literals and nested containers."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Callable
from typing import Any, TypeAlias

from npu_ir.core.literals import LAYOUTS, MAX_LITERAL_DEPTH, MEMORY_FORMATS, Literal, device_named
from npu_ir.core.structure import LEAF_STRUCTURE, MAX_DEPTH, Structure
from npu_ir.core.types import (
    SCALAR_KINDS,
    ScalarType,
    TensorType,
    Type,
    is_dtype_name,
    memory_format_strides,
    parse_dtype,
)
from npu_ir.errors import GraphError, ParseError
from npu_ir.symbolic.expressions import Dim, Expr, call, is_symbol_name, symbol, total
from npu_ir.symbolic.functions import FUNCTIONS, require_bounded
from npu_ir.text.lexer import Token, format_position, tokenize

# A structure and its leaves.
Tree: TypeAlias = "tuple[Structure, list[Any]]"

_WORDS: dict[str, Literal] = {
    "None": None,
    "True": True,
    "False": False,
    "inf": float("inf"),
    "nan": float("nan"),
    **LAYOUTS,
    **MEMORY_FORMATS,
}
_CONSTRUCTORS: dict[str, tuple[Callable[..., Literal], tuple[Any, ...]]] = {
    "complex": (complex, ((int, float), (int, float))),
    "device": (device_named, (str,)),
}
# Limits keep recursive descent within Python's stack: containers, and the context of the innermost.
_MAX_NESTING = MAX_DEPTH + MAX_LITERAL_DEPTH
_MAX_EXPRESSION_NESTING = 50
_INTEGER = re.compile(r"-?[0-9]+")
_NEXT_CHARACTER = re.compile(r"(?:\s|#[^\n]*)*(.)")
_END_OF_SIZES = 1 << 63


class Reader:
    """Recursive descent parser: one method per construct, one token of lookahead."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = tokenize(text)
        self._depth = 0
        self._expression_depth = 0
        self.token = next(self._tokens)

    # Tokens

    def fail(self, message: str, at: Token | None = None, *, fix: str | None = None) -> ParseError:
        """Return an error that points at a token, by default the current one."""
        return ParseError(message, where=format_position(self._text, (at or self.token).offset), fix=fix)

    def advance(self) -> Token:
        token = self.token
        if token.kind != "end":
            self.token = next(self._tokens)
        return token

    def at(self, text: str) -> bool:
        return self.token.kind in ("mark", "word") and self.token.text == text

    def is_followed_by(self, mark: str) -> bool:
        """Return whether the current token, a word or string, is followed by ``mark``."""
        match = _NEXT_CHARACTER.match(self._text, self.token.offset + len(self.token.text))
        return match is not None and match[1] == mark

    def accept(self, text: str) -> bool:
        if not self.at(text):
            return False
        self.advance()
        return True

    def expect(self, text: str) -> None:
        if not self.accept(text):
            raise self._unexpected_error(f"{text!r}")

    def take(self, *kinds: str) -> Token:
        """Take a token of one of these kinds."""
        if self.token.kind not in kinds:
            raise self._unexpected_error(f"a {' or '.join(kinds)}")
        return self.advance()

    def finish(self) -> None:
        if self.token.kind != "end":
            raise self._unexpected_error("the end of the text")

    def _unexpected_error(self, wanted: str) -> ParseError:
        found = "the end of the text" if self.token.kind == "end" else repr(self.token.text[:40])
        return self.fail(f"expected {wanted}, got {found}")

    def word(self) -> str:
        token = self.take("word", "string")
        return self._unquote(token) if token.kind == "string" else token.text

    def string(self) -> str:
        return self._unquote(self.take("string"))

    def name(self) -> str:
        """Read the name of a value."""
        token = self.take("value")
        return self._unquote(token) if token.text.startswith('"') else token.text

    def _unquote(self, token: Token) -> str:
        try:
            return str(json.loads(token.text))
        except ValueError as error:
            raise self.fail(f"{token.text[:40]} is not a JSON string", token) from error

    def sequence(self, close: str, item: Callable[[], Any]) -> list[Any]:
        items = []
        while not self.accept(close):
            items.append(item())
            if not self.at(close):
                self.expect(",")
        return items

    def read_nested(self, parse: Callable[[], Any]) -> Any:
        self._depth += 1
        if self._depth > _MAX_NESTING:
            raise self.fail(f"nested deeper than {_MAX_NESTING}")
        result = parse()
        self._depth -= 1
        return result

    # Types

    def value_type(self) -> Type:
        token = self.take("word")
        if not self.accept("["):
            if token.text not in SCALAR_KINDS:
                raise self.fail(f"{token.text!r} is not a type", token)
            return ScalarType(token.text, self._scalar_value(token))  # type: ignore[arg-type]
        if not is_dtype_name(token.text):
            raise self.fail(f"unknown dtype {token.text!r}", token)
        dtype, shape = parse_dtype(token.text), tuple(self.sequence("]", self.dim))
        if not self.accept("@"):
            return TensorType(shape, dtype)
        if self.token.text in LAYOUTS:
            return TensorType(shape, dtype, layout=LAYOUTS[self.advance().text])
        return TensorType(shape, dtype, self._strides(shape))

    def _scalar_value(self, kind: Token) -> Dim | None:
        """Read the value of an ``int`` type, if it has one."""
        if kind.text != "int" or not self.accept("("):
            return None
        start = self.token
        value = self.expression()
        if not isinstance(value, (int, Expr)):
            raise self.fail(f"{value!r} is not an integer", start)
        self.expect(")")
        return value

    def _strides(self, shape: tuple[Dim, ...]) -> tuple[Dim, ...]:
        if self.accept("["):
            return tuple(self.sequence("]", self.dim))
        token = self.take("word")
        if token.text not in MEMORY_FORMATS:
            raise self.fail(f"{token.text!r} is not a memory format", token)
        try:
            return memory_format_strides(shape, MEMORY_FORMATS[token.text])
        except ParseError as error:
            raise self.fail(error.message, token) from error

    def dim(self) -> Dim:
        """Read a size or stride, which may be an expression."""
        token = self.token
        value = self.expression()
        if isinstance(value, Expr) or (isinstance(value, int) and 0 <= value < _END_OF_SIZES):
            return value
        raise self.fail(f"expected an integer from 0 to 2**63 - 1, got {token.text[:40]}", token)

    def expression(self) -> Any:
        """Read a number or an expression over symbols."""
        token = self.token
        try:
            return require_bounded(self._sum())
        except (GraphError, OverflowError) as error:
            message = error.message if isinstance(error, GraphError) else f"too large a number: {error}"
            raise self.fail(message, token) from error

    def _sum(self) -> Any:
        self._split_sign()
        parts = [self._product() * -1 if self.accept("-") else self._product()]
        while True:
            self._split_sign()
            if self.accept("+"):
                parts.append(self._product())
            elif self.accept("-"):
                parts.append(self._product() * -1)
            else:
                return parts[0] if len(parts) == 1 else total(parts)

    def _split_sign(self) -> None:
        """Split a negative number into two tokens: in a sum its sign is an operator."""
        token = self.token
        if token.kind == "number" and token.text.startswith("-"):
            digits = token.text[1:]
            rest = Token("word" if digits == "inf" else "number", digits, token.offset + 1)
            self._tokens = itertools.chain([rest], self._tokens)
            self.token = Token("mark", "-", token.offset)

    def _product(self) -> Any:
        product = self._power()
        while self.token.kind == "mark" and self.token.text in ("*", "//", "/"):
            mark = self.advance()
            right = self._power()
            if mark.text == "*":
                product = product * right
            else:
                name = "floordiv" if mark.text == "//" else "truediv"
                product = self._call_function(mark, name, product, right)
        return product

    def _power(self) -> Any:
        base = self._factor()
        return self._call_function(self.token, "pow", base, self.integer()) if self.accept("**") else base

    def _factor(self) -> Any:
        if self.token.kind == "number":
            token = self.token
            number = self.number()
            if isinstance(number, float) and not math.isfinite(number):
                raise self.fail(f"{token.text[:40]} is too large a number", token)
            return number
        if self.accept("("):
            inner = self._read_parenthesized(self._sum)
            self.expect(")")
            return inner
        token = self.take("word")
        if not self.accept("("):
            if not is_symbol_name(token.text):
                raise self.fail(f"{token.text!r} is not a symbol", token)
            return symbol(token.text)
        if token.text not in FUNCTIONS:
            problem = f"{token.text!r} is not a function: expected one of {', '.join(FUNCTIONS)}"
            raise self.fail(problem, token)
        arguments = self._read_parenthesized(lambda: self.sequence(")", self._sum))
        return self._call_function(token, token.text, *arguments)

    def _read_parenthesized(self, parse: Callable[[], Any]) -> Any:
        """Read the content of parentheses in an expression, up to a limit of nesting."""
        self._expression_depth += 1
        if self._expression_depth > _MAX_EXPRESSION_NESTING:
            raise self.fail(f"an expression nested deeper than {_MAX_EXPRESSION_NESTING}")
        result = parse()
        self._expression_depth -= 1
        return result

    def _call_function(self, token: Token, function: str, *arguments: Any) -> Any:
        try:
            return call(function, *arguments)
        except (ArithmeticError, TypeError, ValueError) as error:
            shown = ", ".join(map(str, arguments))
            raise self.fail(f"{function}({shown}) has no value: {error}", token) from error

    def integer(self) -> int:
        token = self.token
        number = self.number()
        if not isinstance(number, int):
            raise self.fail(f"expected an integer, got {token.text[:40]}", token)
        return number

    def size(self) -> int:
        """Read a size or stride that is a number."""
        token = self.token
        number = self.number()
        if not isinstance(number, int) or not 0 <= number < _END_OF_SIZES:
            raise self.fail(f"expected an integer from 0 to 2**63 - 1, got {token.text[:40]}", token)
        return number

    # Literals

    def number(self) -> int | float:
        token = self.take("number")
        try:
            return int(token.text) if _INTEGER.fullmatch(token.text) else float(token.text)
        except ValueError as error:
            raise self.fail(f"{token.text[:40]}... is too long a number", token) from error

    def literal(self) -> Literal:
        if self.token.kind == "number":
            return self.number()
        if self.token.kind == "string":
            return self.string()
        if self.accept("["):
            return self.read_nested(lambda: self.sequence("]", self.literal))
        if self.accept("{"):
            return dict(
                self.read_nested(lambda: self.sequence("}", lambda: self._pair(self.string, self.literal)))
            )
        if self.token.kind != "word":
            raise self._unexpected_error("a literal")
        token = self.advance()
        if token.text in _CONSTRUCTORS:
            return self._construct(token)
        if token.text in _WORDS:
            return _WORDS[token.text]
        if not is_dtype_name(token.text):
            raise self.fail(f"{token.text!r} is not a literal", token)
        return parse_dtype(token.text)

    def _construct(self, token: Token) -> Literal:
        self.expect("(")
        parts = self.sequence(")", self.literal)
        make, kinds = _CONSTRUCTORS[token.text]
        problem = f"{token.text}({', '.join(map(repr, parts))[:80]}) is not a {token.text}"
        if len(parts) != len(kinds) or not all(map(isinstance, parts, kinds)):
            raise self.fail(problem, token)
        try:
            return make(*parts)
        except (OverflowError, RuntimeError, ValueError) as error:
            raise self.fail(problem, token) from error

    # Containers

    def value(self) -> Any:
        """Read a leaf that is a value of the graph; a subclass that has a graph overrides this."""
        raise self.fail(f"there is no value %{self.token.text} here")

    def tree(self) -> Tree:
        """Read nested containers with values and literals as leaves."""
        if self.token.kind == "value":
            return LEAF_STRUCTURE, [self.value()]
        if self.accept("("):
            return container("tuple", None, self.read_nested(lambda: self.sequence(")", self.tree)))
        if self.accept("["):
            return container("list", None, self.read_nested(lambda: self.sequence("]", self.tree)))
        if self.accept("{"):
            pairs = self.read_nested(lambda: self.sequence("}", lambda: self._pair(self.literal, self.tree)))
            return container("dict", [key for key, _ in pairs], [child for _, child in pairs])
        if self.accept("@"):
            return container(*self.read_nested(self._other_container))
        return LEAF_STRUCTURE, [self.literal()]

    def _pair(self, read_key: Callable[[], Any], read_item: Callable[[], Any]) -> tuple[Any, Any]:
        key = read_key()
        self.expect(":")
        return key, read_item()

    def _other_container(self) -> tuple[str, Literal, list[Tree]]:
        kind = self.string()
        self.expect("(")
        context = self.literal()
        if not self.at(")"):
            self.expect(",")
        return kind, context, self.sequence(")", self.tree)


def container(kind: str, context: Literal, parts: list[Tree]) -> Tree:
    structure = Structure(kind, context, tuple(child for child, _ in parts))
    return structure, [leaf for _, leaves in parts for leaf in leaves]
