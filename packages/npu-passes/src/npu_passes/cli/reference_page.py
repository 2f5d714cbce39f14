"""Reference page of passes and pipelines in Markdown, generated from the passes themselves."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence

from npu_passes.core.base import Pass
from npu_passes.core.options import Option, format_value, options_of
from npu_passes.core.pass_order import passes_of
from npu_passes.core.pipeline import Pipeline
from npu_passes.errors import PassError

_HEAD = """\
# Passes and pipelines

This page is generated from the passes: `npu passes --markdown` prints it, including installed plugins. How to
use them is in [passes](../concepts/passes.md), how to write one in [write a pass](../how-to/write-a-pass.md).
"""


def passes_page(passes: Iterable[type[Pass]], pipelines: Iterable[Pipeline]) -> str:
    """Return the reference page of some passes and pipelines."""
    parts = [_HEAD, "## Pipelines\n"]
    parts += [_format_pipeline(item) for item in pipelines]
    parts += ["## Passes\n"]
    parts += [_format_pass(item) for item in passes]
    return "\n".join(parts)


def first_sentence(item: type[Pass]) -> str:
    """Return the first line of a pass's docstring, as plain text."""
    return description_of(item).partition("\n")[0].replace("``", "")


def description_of(item: type[Pass]) -> str:
    """Return the docstring of a pass, without its options."""
    text = inspect.getdoc(item) or ""
    return text.partition("Attributes:\n")[0].strip() or "Undocumented."


def passes_text(item: Pipeline, separator: str = ",") -> str:
    """Return the passes of a pipeline as text, or the error that prevents ordering them."""
    try:
        return separator.join(map(str, passes_of(item.name)))
    except PassError as error:
        return f"cannot be used: {error.message}"


def option_text(option: Option) -> str:
    """Return an option with its default in text form: ``max_bytes=1024``."""
    return f"{option.name}={format_value(option.default)}"


def _format_pipeline(item: Pipeline) -> str:
    names = passes_text(item) or "no passes"
    return f"### `{item.name}`\n\n{item.doc}\n\n```text\n{names}\n```\n"


def _format_pass(item: type[Pass]) -> str:
    facts = [f"Numerics: {item.numerics}."]
    facts += [f"Runs before {_format_names(item.before)}."] if item.before else []
    facts += [f"Runs after {_format_names(item.after)}."] if item.after else []
    facts += ["A second run changes nothing."] if item.is_idempotent else []
    text = f"### `{item.name}`\n\n{_to_markdown(description_of(item))}\n\n{' '.join(facts)}\n"
    options = options_of(item)
    if not options:
        return text
    rows = [f"| `{option_text(option)}` | {option.kind} | {_to_markdown(option.doc)} |" for option in options]
    return "\n".join([text, "| option | type | |", "| --- | --- | --- |", *rows, ""])


def _format_names(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _to_markdown(text: str) -> str:
    """Return a docstring as Markdown: code in single backticks."""
    return text.replace("``", "`")
