"""Lexer of the text form."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

from npu_ir.core.node import InputKind
from npu_ir.errors import ParseError

PLAIN_NAME = re.compile(r"[A-Za-z0-9_.$#\-]+")
PLAIN_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z0-9_]+)*")
# Words with a meaning of their own where an op type is allowed.
_STATEMENTS = frozenset({"symbol", "require", "call", "prologue", "region", "update", "return"})
_CLAUSES = frozenset({"target", "aliases", "overlaps", "non_persistent", "as"})
KEYWORDS = _STATEMENTS | _CLAUSES | {kind.value for kind in InputKind}

_STRING = r'"(?:[^"\\\n]|\\.)*"'
_TOKEN = re.compile(
    rf"""
    (?P<skip>\s+|\#[^\n]*)
  | %(?P<value>{PLAIN_NAME.pattern}|{_STRING})
  | (?P<string>{_STRING})
  | (?P<hash>sha256:[0-9a-f]{{16}})
  | (?P<number>(?:-inf|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)(?![\w.]))
  | (?P<word>{PLAIN_WORD.pattern})
  | (?P<mark>[=!<>]=|\*\*|//|[][(){{}},:=@?<>+*/-])
    """,
    re.VERBOSE | re.ASCII,
)


@dataclass(frozen=True, slots=True)
class Token:
    """One token: ``kind`` is value, string, hash, number, word, mark or end."""

    kind: str
    text: str
    offset: int


def quote_word(word: str) -> str:
    """Return ``word`` unchanged if it is a single word token, else as a JSON string."""
    return word if PLAIN_WORD.fullmatch(word) else json.dumps(word)


def quote_op_type(op_type: str) -> str:
    """Return an op type as written at the start of a statement."""
    return json.dumps(op_type) if op_type in KEYWORDS else quote_word(op_type)


def quote_name(name: str) -> str:
    """Return the name of a value as written after ``%``."""
    return name if PLAIN_NAME.fullmatch(name) else json.dumps(name)


def tokenize(text: str) -> Iterator[Token]:
    """Yield the tokens of ``text``, an end token last; comments and white space are left out.

    Raises:
        ParseError: No token starts at a character.
    """
    offset = 0
    while offset < len(text):
        match = _TOKEN.match(text, offset)
        if match is None:
            raise ParseError(
                f"unexpected {text[offset : offset + 20]!r}", where=format_position(text, offset)
            )
        kind = match.lastgroup
        assert kind is not None
        if kind != "skip":
            yield Token(kind, match[kind], offset)
        offset = match.end()
    yield Token("end", "", offset)


def format_position(text: str, offset: int) -> str:
    """Return ``line L, column C`` of an offset, both counted from 1."""
    line = text.count("\n", 0, offset) + 1
    return f"line {line}, column {offset - text.rfind(chr(10), 0, offset)}"
