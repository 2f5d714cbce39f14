"""Report of ``npu opt``."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from npu_ir.cli.console import print_facts
from npu_ir.cli.facts import file_facts, files_text
from npu_ir.cli.quantities import count_text
from npu_passes.cli.reports import nodes_text, print_journal, print_statistics, result_data
from npu_passes.core.base import Pass
from npu_passes.core.pass_text import format_passes
from npu_passes.manager.result import PassResult


def print_report(
    result: PassResult,
    passes: tuple[Pass, ...],
    options: argparse.Namespace,
    seconds: float,
    origin: str,
    *,
    has_weights: bool,
) -> None:
    """Print the reports that the command line asks for, and a summary.

    Args:
        result: The result of the passes.
        passes: The passes.
        options: The command line.
        seconds: The duration of the run.
        origin: The source of the weights for checks.
        has_weights: Whether weights were saved with the original graph.
    """
    if options.json:
        print(json.dumps(result_data(result), indent=2))
        return
    if options.stats:
        print_statistics(result)
    if options.explain:
        print_journal(result.journal)
    lines = {
        "graph": result.graph.name,
        "passes": format_passes(passes),
        "nodes": nodes_text(result.before, result.after),
        "rounds": f"{result.rounds}, {count_text(len(result.journal.rewrites), 'rewrite')}"
        f", {len(result.journal.refusals):,} refused",
        "checked": _checked_text(options, origin),
        "dumps": _dumps_text(options.dump_dir),
        "saved": "" if options.output is None else files_text(file_facts(options.output)["files"]),
        "weights": _weights_text(options) if has_weights else "",
        "time": f"{seconds:.3f} s",
    }
    print_facts({name: line for name, line in lines.items() if line})


def _checked_text(options: argparse.Namespace, origin: str) -> str:
    done = {"after each pass": options.check, "no rewrite changes results": options.bisect}
    checks = ", ".join(text for text, is_done in done.items() if is_done)
    return f"{checks}; weights: {origin}" if checks else ""


def _weights_text(options: argparse.Namespace) -> str:
    if options.output is None:
        return ""
    return f"not copied: npu run {options.output} --weights {options.file}"


def _dumps_text(folder: Path | None) -> str:
    return "" if folder is None else f"{count_text(len(list(folder.glob('*.ir'))), 'file')} in {folder}"
