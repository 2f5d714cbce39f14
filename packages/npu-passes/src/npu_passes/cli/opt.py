"""``npu opt``: passes over a saved graph."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from npu_ir import load_ir, save_ir
from npu_ir.cli import input_text
from npu_ir.cli.console import print_facts
from npu_ir.cli.facts import file_facts, files_text
from npu_ir.cli.failures import FAILED, OK, warn
from npu_ir.cli.options import add_file, add_inputs, add_random_data, add_sizes
from npu_ir.cli.quantities import counted
from npu_ir.errors import UsageError
from npu_passes.base import Pass
from npu_passes.cli.check_data import chosen_data
from npu_passes.cli.culprits import found_culprit, print_culprit
from npu_passes.cli.reports import nodes_text, print_journal, print_statistics, result_data
from npu_passes.errors import PassError
from npu_passes.manager import MAX_ROUNDS, PassManager, PassResult
from npu_passes.pass_text import format_passes, parse_passes
from npu_passes.registry import passes_of

_EPILOG = f"""\
passes:
  canonicalize,constant-folding{{max_bytes=1024}} names passes, with options in braces. They run in this order, as
  far as they allow it, and again until nothing changes. npu passes lists passes and pipelines.

weights:
  The passes need none, and what they make of weights is computed when weights are bound: OUT takes the same
  weights as FILE. Those that were saved with FILE are not copied: npu run OUT --weights FILE

checks:
  --check runs the graph before and after each pass on the same data and fails where results differ by more than
  the pass states. --bisect finds the pass and its one rewrite. The weights are those of --weights, those that
  were saved with FILE, or random ones.

{input_text.HELP}
example:
  npu opt net.json -o fast.json --stats
  npu opt net.json --passes cse,dead-code --explain
  npu opt net.json -o fast.json --check --weights net.safetensors
"""


def add_to(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "opt",
        help="run passes over a saved graph",
        description="Run passes over a saved graph, say what they did, and save the graph they make.",
        epilog=_EPILOG,
    )
    add_file(parser, "file", help="a graph saved by npu extract or save_ir")
    add_file(parser, "-o", "--output", help="where to save the new graph, as JSON (default: nowhere)")
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--pipeline", default="default", metavar="NAME", help="named passes (default: default)"
    )
    which.add_argument("--passes", metavar="NAME,NAME{OPTION=VALUE}", help="these passes")
    parser.add_argument(
        "--max-rounds",
        type=int,
        default=MAX_ROUNDS,
        metavar="N",
        help=f"the passes are repeated until nothing changes, but not more often (default: {MAX_ROUNDS})",
    )
    parser.add_argument("--stats", action="store_true", help="what each pass changed, in numbers")
    parser.add_argument(
        "--explain", action="store_true", help="each rewrite, and each that was refused, with the reason"
    )
    parser.add_argument("--json", action="store_true", help="print all of this as JSON")
    parser.add_argument(
        "--dump-dir",
        type=Path,
        metavar="FOLDER",
        help="write the graph as text before and after each pass into this folder",
    )
    _add_checks(parser)
    parser.set_defaults(run=run)


def _add_checks(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--check", action="store_true", help="compare results before and after each pass")
    parser.add_argument("--bisect", action="store_true", help="find the first rewrite that changes results")
    parser.add_argument(
        "--rtol", type=float, help="for --bisect: what may differ from FILE (default: what each pass states)"
    )
    parser.add_argument(
        "--repro-dir",
        type=Path,
        metavar="FOLDER",
        help="for --bisect: where to put what shows it (default: OUT.repro)",
    )
    weights = parser.add_mutually_exclusive_group()
    add_file(weights, "--weights", help="for --check and --bisect; any file that npu run takes")
    weights.add_argument("--random-weights", type=int, metavar="SEED", help="make up weights")
    add_inputs(parser, "an argument of the graph")
    add_sizes(parser)
    add_random_data(parser)


def run(options: argparse.Namespace) -> int:
    """Run the passes, report and save."""
    _require_sense(options)
    passes = _chosen_passes(options)
    graph = load_ir(options.file)
    data, origin = chosen_data(graph, options)
    culprit = None if data is None else found_culprit(graph, passes, data, options)
    if culprit is not None:
        print_culprit(culprit, options)
        return FAILED
    manager = PassManager(
        passes,
        max_rounds=options.max_rounds,
        checked=data if options.check else None,
        dump_dir=options.dump_dir,
    )
    start = time.perf_counter()
    result = manager.run(graph)
    seconds = time.perf_counter() - start
    if options.output is not None:
        save_ir(result.graph, options.output)
    _report(result, manager.passes, options, seconds, origin)
    if not result.converged:
        warn(f"not converged after {result.rounds} rounds: --max-rounds N allows more")
    return OK


def _require_sense(options: argparse.Namespace) -> None:
    """Refuse what would be ignored."""
    if options.max_rounds < 1:
        raise UsageError(f"--max-rounds {options.max_rounds}: passes run in at least one round")
    if not options.bisect and (options.rtol is not None or options.repro_dir is not None):
        raise UsageError("--rtol and --repro-dir are for --bisect", fix="add --bisect, or leave them out")
    has_weights = options.weights is not None or options.random_weights is not None
    if not (options.check or options.bisect) and (has_weights or options.input or options.size):
        raise UsageError(
            "passes look at no weights and no inputs",
            fix="those are for --check and --bisect: add one of them, or leave out the data",
        )


def _chosen_passes(options: argparse.Namespace) -> list[Pass]:
    """Return what ``--passes`` or ``--pipeline`` names; what cannot be read there is wrong usage."""
    try:
        return passes_of(options.pipeline) if options.passes is None else parse_passes(options.passes)
    except PassError as error:
        raise UsageError(error.message, where=error.where, fix=error.fix) from error


def _report(
    result: PassResult, passes: tuple[Pass, ...], options: argparse.Namespace, seconds: float, origin: str
) -> None:
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
        "rounds": f"{result.rounds}, {counted(len(result.journal.rewrites), 'rewrite')}"
        f", {len(result.journal.refusals):,} refused",
        "checked": _checked_text(options, origin),
        "dumps": _dumps_text(options.dump_dir),
        "saved": "" if options.output is None else files_text(file_facts(options.output)["files"]),
        "time": f"{seconds:.3f} s",
    }
    print_facts({name: line for name, line in lines.items() if line})


def _checked_text(options: argparse.Namespace, origin: str) -> str:
    done = {"after each pass": options.check, "no rewrite changes results": options.bisect}
    found = ", ".join(text for text, is_done in done.items() if is_done)
    return f"{found}; weights: {origin}" if found else ""


def _dumps_text(folder: Path | None) -> str:
    return "" if folder is None else f"{counted(len(list(folder.glob('*.ir'))), 'file')} in {folder}"
