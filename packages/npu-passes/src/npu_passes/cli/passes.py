"""``npu passes``: list, descriptions and reference page of passes and pipelines."""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Iterable, Sequence
from typing import Any

from npu_ir.cli.console import print_facts, print_table
from npu_ir.cli.failures import format_error, warn
from npu_ir.cli.json_output import add_json, is_text_wanted, print_or_write_json
from npu_ir.cli.options import set_completions
from npu_ir.errors import UsageError
from npu_passes.core.base import Pass
from npu_passes.core.options import Option, format_value, options_of
from npu_passes.core.pass_text import passes_of
from npu_passes.core.registry import Pipeline, all_passes, all_pipelines, find_pass, origin_of
from npu_passes.errors import PassError

_EPILOG = """\
example:
  npu passes
  npu passes constant-folding
  npu passes --json | jq '.passes[].name'
"""


def add_to(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "passes",
        help="list passes and pipelines",
        description="List passes and pipelines, those of plugins included, or say what one of them does.",
        epilog=_EPILOG,
    )
    name = parser.add_argument(
        "name", nargs="?", metavar="NAME", help="a pass or pipeline, to read all about it"
    )
    set_completions(name, lambda: {*all_passes(), *all_pipelines()})
    form = parser.add_mutually_exclusive_group()
    add_json(form, "all of it")
    form.add_argument("--markdown", action="store_true", help="print a page of Markdown")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Print the passes and pipelines."""
    options.progress.stage("reading passes")
    passes, pipelines = _select(options.name)
    print_or_write_json(
        lambda: {
            "passes": [_pass_data(item) for item in passes],
            "pipelines": [*map(_pipeline_data, pipelines)],
        },
        options,
        "the passes",
    )
    if not is_text_wanted(options):
        return
    if options.markdown:
        print(passes_page(passes, pipelines), end="")
    elif options.name is None:
        _print_list(passes, pipelines)
    else:
        for item in passes:
            _print_pass(item)
        for pipeline in pipelines:
            print_facts(_pipeline_lines(pipeline))


def _select(name: str | None) -> tuple[list[type[Pass]], list[Pipeline]]:
    """Return all passes and pipelines, or those called ``name``."""
    if name is None:
        return _usable_passes(), list(all_pipelines().values())
    pipelines = [pipeline for known, pipeline in all_pipelines().items() if known == name]
    if pipelines and name not in all_passes():
        return [], pipelines
    try:
        return [find_pass(name)], pipelines
    except PassError as error:
        raise UsageError(error.message, where=error.where, fix=error.fix) from error


def _usable_passes() -> list[type[Pass]]:
    """Return all passes; warn about objects of plugins that are not passes."""
    passes = []
    for name in all_passes():
        try:
            passes.append(find_pass(name))
        except PassError as error:
            warn(format_error(error))
    return passes


def _print_list(passes: list[type[Pass]], pipelines: list[Pipeline]) -> None:
    rows = [
        (
            item.name,
            str(item.numerics),
            ", ".join(_pipelines_of(item)),
            origin_of(item.name),
            first_sentence(item),
        )
        for item in passes
    ]
    print_table(("pass", "numerics", "pipelines", "from", "what it does"), rows)
    print()
    lines = [
        (item.name, origin_of(item.name, "pipelines"), passes_text(item), item.doc) for item in pipelines
    ]
    print_table(("pipeline", "from", "passes", "what it is for"), lines)


def _print_pass(item: type[Pass]) -> None:
    missing = [f"{name} (there is none)" for name in item.pipelines if name not in all_pipelines()]
    print_facts(
        {
            "pass": item.name,
            "from": origin_of(item.name),
            "numerics": str(item.numerics),
            "pipelines": ", ".join([*_pipelines_of(item), *missing]) or "none",
            **{
                caption: ", ".join(names)
                for caption, names in (("before", item.before), ("after", item.after))
                if names
            },
        }
    )
    print(f"\n{description_of(item)}")
    if options_of(item):
        print()
        rows = [(option_text(option), option.kind, option.doc) for option in options_of(item)]
        print_table(("option", "type", "what it does"), rows)


def _pipeline_lines(item: Pipeline) -> dict[str, str]:
    return {
        "pipeline": item.name,
        "from": origin_of(item.name, "pipelines"),
        "what for": item.doc or "undocumented",
        "passes": passes_text(item, separator="\n"),
    }


def _pipelines_of(item: type[Pass]) -> list[str]:
    """Return the names of the pipelines with a pass, except those that cannot be ordered."""
    names = []
    for name in all_pipelines():
        try:
            passes = passes_of(name)
        except PassError:
            continue
        if any(isinstance(part, item) for part in passes):
            names.append(name)
    return names


def _pass_data(item: type[Pass]) -> dict[str, Any]:
    return {
        "name": item.name,
        "from": origin_of(item.name),
        "rtol": item.numerics.rtol,
        "idempotent": item.is_idempotent,
        "before": item.before,
        "after": item.after,
        "pipelines": _pipelines_of(item),
        "options": [
            {"name": option.name, "type": option.kind, "default": option.default, "doc": option.doc}
            for option in options_of(item)
        ],
        "doc": inspect.getdoc(item),
    }


def _pipeline_data(item: Pipeline) -> dict[str, Any]:
    return {
        "name": item.name,
        "from": origin_of(item.name, "pipelines"),
        "passes": passes_text(item),
        "doc": item.doc,
    }


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
