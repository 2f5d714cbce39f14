"""Reports of ``npu opt``: results of passes as tables, and as plain data for JSON."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

from npu_ir.cli.console import print_facts, print_table
from npu_ir.cli.facts import file_facts, files_text
from npu_ir.cli.json_output import is_text_wanted, print_or_write_json
from npu_ir.cli.options import NOT_SAVED
from npu_ir.cli.quantities import count_text, scaled_text, size_text
from npu_passes.core.base import Pass
from npu_passes.core.journal import Journal, Rewrite
from npu_passes.core.pass_text import format_passes
from npu_passes.manager.statistics import GraphStatistics, PassResult, PassStatistics


def flops_text(count: int) -> str:
    """Return a number of floating-point operations in a suitable unit: ``3.64 G``."""
    return scaled_text(count, ("", " K", " M", " G", " T", " P"))


# Columns of the table: name, field of `GraphStatistics`, and formatter.
_QUANTITIES: tuple[tuple[str, str, Callable[[int], str]], ...] = (
    ("nodes", "nodes", "{:,}".format),
    ("prologue", "prologue_nodes", "{:,}".format),
    ("parameters", "parameters", "{:,}".format),
    ("constants", "constant_bytes", size_text),
    ("FLOPs", "flops", flops_text),
)


_MOST_NAMES = 6


def nodes_text(before: GraphStatistics, after: GraphStatistics) -> str:
    """Return the number of nodes before and after: ``62 -> 42, and 80 in the prologue``."""
    prologue = f", and {after.prologue_nodes:,} in the prologue" if after.prologue_nodes else ""
    return f"{before.nodes:,} -> {after.nodes:,}{prologue}"


def print_statistics(result: PassResult) -> None:
    """Print the changes of each pass, summed over its runs, between the sizes before and after."""
    by_pass: dict[str, list[PassStatistics]] = {}
    for item in result.passes:
        by_pass.setdefault(item.text, []).append(item)
    rows = [["before", "", "", *_sizes(result.before), ""]]
    rows += [_row(text, runs) for text, runs in by_pass.items()]
    total = [count_text(result.rounds, "round"), f"{len(result.journal.rewrites):,}"]
    rows.append(["after", *total, *_sizes(result.after), _seconds(result.seconds)])
    print_table(("pass", "runs", "rewrites", *(column for column, *_ in _QUANTITIES), "time"), rows)
    if result.after.unknown_flops:
        print(
            f"FLOPs without {count_text(result.after.unknown_flops, 'node')} whose operations are not known"
        )
    print()


def _row(text: str, runs: Sequence[PassStatistics]) -> list[str]:
    rewrites = sum(run.rewrites for run in runs)
    changes = [_change(runs, field, write) for _, field, write in _QUANTITIES]
    seconds = _seconds(sum(run.seconds for run in runs))
    return [text, str(len(runs)), f"{rewrites:,}" if rewrites else "", *changes, seconds]


def _change(runs: Sequence[PassStatistics], field: str, write: Callable[[int], str]) -> str:
    change = sum(getattr(run.after, field) - getattr(run.before, field) for run in runs)
    return f"{'+' if change > 0 else '-'}{write(abs(change))}" if change else ""


def _sizes(item: GraphStatistics) -> list[str]:
    return [write(getattr(item, field)) for _, field, write in _QUANTITIES]


def _seconds(seconds: float) -> str:
    return f"{seconds:.3f} s"


def print_journal(journal: Journal) -> None:
    """Print every rewrite and every refusal.

    Consecutive rewrites by one rule that made no new nodes share a line; so do refusals for one reason.
    """
    if journal.rewrites:
        rows = [_rewrites_row(list(items)) for _, items in groupby(journal.rewrites, _kind)]
        print_table(("rewrite by", "rule", "nodes", "made"), rows)
        print()
    if journal.refusals:
        groups = groupby(journal.refusals, lambda item: (item.pass_name, item.rule, item.reason))
        refused = [
            (pass_name, rule, names_text([item.path for item in items]), reason)
            for (pass_name, rule, reason), items in groups
        ]
        print_table(("refused by", "rule", "nodes", "because"), refused)
        print()


def names_text(names: Sequence[str]) -> str:
    """Return the names, shortened if there are many: ``to, add, ..., neg, conv2d (13 in all)``."""
    if len(names) <= _MOST_NAMES:
        return ", ".join(names)
    return f"{', '.join(names[:2])}, ..., {', '.join(names[-2:])} ({len(names):,} in all)"


def _kind(item: Rewrite) -> tuple[Any, ...]:
    """Return a key shared by the rewrites of one line."""
    return item.pass_name, item.rule, id(item) if item.made else None


def _rewrites_row(items: list[Rewrite]) -> tuple[str, ...]:
    paths = [path for item in items for path in item.paths]
    return items[0].pass_name, items[0].rule, names_text(paths), names_text(items[0].made)


def result_data(result: PassResult) -> dict[str, Any]:
    """Return the result of passes as plain data."""
    return {
        "graph": result.graph.name,
        "before": _size_data(result.before),
        "after": _size_data(result.after),
        "rounds": result.rounds,
        "converged": result.converged,
        "seconds": result.seconds,
        "passes": [_pass_data(item) for item in result.passes],
        "rewrites": [dataclasses.asdict(item) for item in result.journal.rewrites],
        "refusals": [dataclasses.asdict(item) for item in result.journal.refusals],
    }


def _pass_data(item: PassStatistics) -> dict[str, Any]:
    facts = {name: getattr(item, name) for name in ("text", "round", "rewrites", "seconds")}
    return facts | {"before": _size_data(item.before), "after": _size_data(item.after)}


def _size_data(item: GraphStatistics) -> dict[str, int]:
    names = [field for _, field, _ in _QUANTITIES]
    return {name: getattr(item, name) for name in (*names, "unknown_flops")}


def print_report(
    result: PassResult,
    passes: tuple[Pass, ...],
    options: argparse.Namespace,
    seconds: float,
    origin: str,
    *,
    has_weights: bool,
) -> None:
    """Print the reports that the command line asks for, and a summary."""
    print_or_write_json(lambda: result_data(result), options, "the report")
    if not is_text_wanted(options):
        return
    if options.stats:
        print_statistics(result)
    if options.explain:
        print_journal(result.journal)
    dumps = [] if options.dump_dir is None else list(options.dump_dir.glob("*.ir"))
    copied = f"not copied: npu run {options.output} --weights {options.file}"
    lines = {
        "graph": result.graph.name,
        "passes": format_passes(passes),
        "nodes": nodes_text(result.before, result.after),
        "rounds": f"{result.rounds}, {count_text(len(result.journal.rewrites), 'rewrite')}"
        f", {len(result.journal.refusals):,} refused",
        "checked": _checked_text(options, origin),
        "dumps": f"{count_text(len(dumps), 'file')} in {options.dump_dir}" if dumps else "",
        "saved": NOT_SAVED if options.output is None else files_text(file_facts(options.output)["files"]),
        "weights": copied if has_weights and options.output is not None else "",
        "time": f"{seconds:.3f} s",
    }
    print_facts({name: line for name, line in lines.items() if line})


def _checked_text(options: argparse.Namespace, origin: str) -> str:
    done = {"after each pass": options.check, "no rewrite changes results": options.bisect}
    checks = ", ".join(text for text, is_done in done.items() if is_done)
    return f"{checks}; weights: {origin}" if checks else ""
