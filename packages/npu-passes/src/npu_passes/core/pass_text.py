"""Passes as text: ``canonicalize,conv-bn-folding{fold_linear=false}``, on command lines and in reports.

A name is that of a pass; or that of a pipeline, which stands for its passes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from npu_passes.core.base import Pass
from npu_passes.core.options import WORDS, Option, options_of, with_article
from npu_passes.core.pass_order import join_passes
from npu_passes.core.registry import all_passes, all_pipelines, find_pass, find_pipeline
from npu_passes.errors import PassError

_TOKEN = re.compile(r'\s*("(?:[^"\\]|\\.)*"|[{}\[\]=,]|[^\s{}\[\]=,"]+)')
_READERS: dict[str, Callable[[str], Any]] = {
    "bool": WORDS.__getitem__,
    "int": int,
    "float": float,
    "str": lambda word: json.loads(word) if word.startswith('"') else word,
}


def format_passes(passes: Sequence[Pass]) -> str:
    """Return passes as text that `parse_passes` reads."""
    return ",".join(map(str, passes))


def parse_passes(
    text: str,
    known: Mapping[str, type[Pass]] | None = None,
    *,
    find: Callable[[str], type[Pass]] | None = None,
) -> list[Pass]:
    """Return the passes that ``text`` names: ``name,name{option=value,option=[a,b]}``.

    Args:
        text: Passes, and pipelines, which stand for their passes. A name that both have is that of the pass.
        known: Passes by name; by default those that ``find`` returns, and all pipelines.
        find: Returns the pass of a name: by default one of a plugin.

    Raises:
        PassError: The text is malformed, a pass or an option is unknown, or a value has the wrong type.
    """
    if not isinstance(text, str):
        raise PassError(
            f"passes are named by text, not by {type(text).__name__}", fix="write 'canonicalize,cse'"
        )
    return _Parser(text, known, find or find_pass, passes_of if known is None else None).parse_passes()


def passes_of(pipeline: str) -> list[Pass]:
    """Return the passes of a named pipeline, in order, including those of plugins that join it.

    Joining passes follow the pipeline's own, by name, as far as their ``before`` and ``after`` allow: the
    order of installation has no influence, and the pipeline's own passes keep their order.

    Raises:
        PassError: The pipeline is unknown, it names an unknown pass, or no order satisfies all constraints
            without reordering the pipeline's own passes.
    """
    text = find_pipeline(pipeline).passes
    own = _Parser(text, None, find_pass, None).parse_passes() if text.strip() else []
    present = {item.name for item in own}
    joining = [
        find_pass(name)
        for name, item in all_passes().items()
        if name not in present and pipeline in getattr(item, "pipelines", ())
    ]
    return join_passes(pipeline, own, [item() for item in joining])


class _Parser:
    """Recursive-descent parser of one text."""

    def __init__(
        self,
        text: str,
        known: Mapping[str, type[Pass]] | None,
        find: Callable[[str], type[Pass]],
        expand: Callable[[str], list[Pass]] | None,
    ) -> None:
        self._text = text
        self._expand = expand  # returns the passes of a pipeline; None where only passes are named
        self._find = find
        self._known = known
        self._tokens = list(self._tokenize())
        self._next = 0

    def _tokenize(self) -> Iterator[str]:
        position, end = 0, len(self._text.rstrip())
        while position < end:
            match = _TOKEN.match(self._text, position)
            if match is None:
                raise self._error(f"unterminated string in {self._text[position:].strip()!r}")
            yield match[1]
            position = match.end()

    def parse_passes(self) -> list[Pass]:
        passes = self._parse_item()
        while self._peek() == ",":
            self._take()
            passes += self._parse_item()
        if self._peek() is not None:
            last = self._tokens[self._next - 1]
            raise self._error(f"{self._peek()!r} follows {last}: passes are separated by commas")
        return passes

    def _parse_item(self) -> list[Pass]:
        name = self._take_word("the name of a pass")
        if self._expand is None or name in all_passes() or name not in all_pipelines():
            return [self._parse_pass(name)]
        if self._peek() == "{":
            raise self._error(
                f"{name} is a pipeline, which has no options",
                fix=f"the passes are {format_passes(self._expand(name))}",
            )
        return self._expand(name)

    def _parse_pass(self, name: str) -> Pass:
        if self._known is not None and name not in self._known:
            raise self._error(f"there is no pass {name!r}", fix=f"the passes are {', '.join(self._known)}")
        pass_type = self._find(name) if self._known is None else self._known[name]
        if self._peek() != "{":
            return pass_type()
        self._take()
        options = {option.name: option for option in options_of(pass_type)}
        values: dict[str, Any] = {}

        def parse_option() -> str:
            name = self._take_word(f"an option of {pass_type.name}, or }}")
            if name not in options or name in values:
                raise self._error(
                    f"{pass_type.name} has no option {name!r}"
                    if name not in options
                    else f"the option {name!r} is given twice",
                    fix=f"its options are {', '.join(options)}" if options else "it has no options",
                )
            self._expect("=")
            values[name] = self._parse_value(options[name])
            return name

        self._parse_items("}", parse_option)
        return pass_type(**values)

    def _parse_items(self, close: str, parse: Callable[[], str]) -> list[str]:
        """Parse items up to ``close``, with commas between them."""
        items: list[str] = []
        while self._peek() != close:
            items.append(parse())
            if self._peek() == ",":
                self._take()
            elif self._peek() != close:
                raise self._error(f"a comma or {close} is missing after {items[-1]}")
        self._take()
        return items

    def _parse_value(self, option: Option) -> Any:
        if option.kind != "list":
            return self._parse_scalar(option, option.kind)
        self._expect("[")
        return tuple(self._parse_items("]", lambda: self._parse_scalar(option, "str")))

    def _parse_scalar(self, option: Option, kind: str) -> Any:
        word = self._take_word(with_article(kind))
        try:
            return _READERS[kind](word)
        except (KeyError, ValueError) as error:
            raise self._error(
                f"the option {option.name!r} is {with_article(option.kind)}, not {word}"
            ) from error

    def _peek(self) -> str | None:
        return self._tokens[self._next] if self._next < len(self._tokens) else None

    def _take(self) -> str | None:
        token = self._peek()
        self._next += 1
        return token

    def _expect(self, token: str) -> None:
        if self._take() != token:
            raise self._error(f"{token!r} is missing")

    def _take_word(self, what: str) -> str:
        token = self._take()
        if token is None or token in "{}[]=,":
            raise self._error(f"{what} is missing" + (f" before {token!r}" if token else " at the end"))
        return token

    def _error(self, problem: str, fix: str | None = None) -> PassError:
        return PassError(
            problem, where=f"passes {self._text!r}", fix=fix or "write name,name{option=value,option=[a,b]}"
        )
