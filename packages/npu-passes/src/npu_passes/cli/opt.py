"""``npu opt``: passes over a saved graph."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from npu_ir import Graph, load_ir, save_ir
from npu_ir.cli import input_text
from npu_ir.cli.call_arguments import make_call
from npu_ir.cli.console import print_facts
from npu_ir.cli.failures import FAILED, OK, warn
from npu_ir.cli.input_text import parse_inputs, parse_sizes
from npu_ir.cli.json_output import add_json, is_text_wanted, print_or_write_json
from npu_ir.cli.options import (
    INT_HIGH,
    add_call,
    add_file,
    add_graph_output,
    add_output_folder,
    add_weights,
    set_completions,
)
from npu_ir.cli.quantities import count_text
from npu_ir.cli.weight_selection import select_weights
from npu_ir.errors import UsageError
from npu_ir.serial.load import read_document
from npu_passes.cli.reports import print_report
from npu_passes.cli.written_passes import read_passes
from npu_passes.core.base import Numerics, Pass
from npu_passes.core.pass_text import passes_of
from npu_passes.core.registry import all_passes, all_pipelines
from npu_passes.errors import PassError
from npu_passes.manager.bisect import bisect
from npu_passes.manager.checked_mode import Checked
from npu_passes.manager.manager import MAX_ROUNDS, PassManager
from npu_passes.manager.reproduction import Culprit

_EPILOG = f"""\
passes:
  canonicalize,constant-folding{{max_bytes=1024}} names passes, with options in braces. They run in this
  order, as far as they allow it, and again until nothing changes. npu passes lists passes and pipelines.

weights:
  The passes need none, and what they make of weights is computed when weights are bound: OUT takes the same
  weights as FILE. Those that were saved with FILE are not copied: npu run OUT --weights FILE

checks:
  --check runs the graph before and after each pass on the same data and fails where results differ by more
  than the pass states. --bisect finds the pass and its one rewrite. The weights are those of --weights, those
  that were saved with FILE, or random ones.

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
    add_graph_output(parser, "where to save the new graph, as JSON (default: nowhere)")
    which = parser.add_mutually_exclusive_group()
    pipeline = which.add_argument(
        "--pipeline", default="default", metavar="NAME", help="named passes (default: default)"
    )
    set_completions(pipeline, all_pipelines)
    passes = which.add_argument(
        "--passes",
        metavar="NAME,NAME{OPTION=VALUE}",
        help="these passes, or pipelines of them; PASS.py:CLASS is a pass",
    )
    set_completions(passes, lambda: {*all_passes(), *all_pipelines()})
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
    add_json(parser, "all of this")
    add_output_folder(
        parser,
        "--dump-dir",
        help="write the graph as text before and after each pass into this folder",
    )
    _add_checks(parser)
    parser.set_defaults(run=run)


def _add_checks(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--check", action="store_true", help="compare results before and after each pass")
    parser.add_argument("--bisect", action="store_true", help="find the first rewrite that changes results")
    parser.add_argument(
        "--rtol",
        type=_tolerance,
        help="for --bisect: what may differ from FILE (default: what each pass states)",
    )
    add_output_folder(
        parser,
        "--repro-dir",
        help="for --bisect: folder for the reproduction, overwritten if it exists (default: OUT.repro, or"
        " FILE.repro)",
    )
    add_weights(parser, "any file that npu run takes", "for --check and --bisect: ")
    add_call(parser, "an argument of the graph")
    parser.set_defaults(seed=None, int_high=None)  # to see whether they are given


def _tolerance(text: str) -> float:
    try:
        return Numerics(float(text)).rtol
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from error
    except PassError as error:
        raise argparse.ArgumentTypeError(error.message) from error


def run(options: argparse.Namespace) -> int:
    """Run the passes, print the report and save the graph."""
    _check_options(options)
    passes = _select_passes(options)
    options.progress.stage("reading the graph")
    graph = load_ir(options.file)
    has_weights = read_document(options.file)["weights"] is not None
    data, origin = _select_data(graph, options)
    if options.bisect:
        options.progress.stage("looking for the rewrite at fault")
    culprit = None if data is None else _find_culprit(graph, passes, data, options)
    if culprit is not None:
        _print_culprit(culprit, options)
        return FAILED
    options.progress.stage("running and checking passes" if options.check else "running passes")
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
    print_report(result, manager.passes, options, seconds, origin, has_weights=has_weights)
    if not result.converged:
        warn(f"not converged after {count_text(result.rounds, 'round')}: a larger --max-rounds allows more")
    return OK


def _check_options(options: argparse.Namespace) -> None:
    """Raise for options that would be ignored."""
    if options.max_rounds < 1:
        raise UsageError(f"--max-rounds {options.max_rounds}: passes run in at least one round")
    if not options.bisect and (options.rtol is not None or options.repro_dir is not None):
        raise UsageError("--rtol and --repro-dir are for --bisect", fix="add --bisect, or leave them out")
    data = (options.weights, options.random_weights, options.constants, options.seed, options.int_high)
    is_data_given = options.input or options.size or any(item is not None for item in data)
    if is_data_given and not (options.check or options.bisect):
        raise UsageError(
            "passes do not use weights or inputs",
            fix="those are for --check and --bisect: add one of them, or leave out the data",
        )


def _select_passes(options: argparse.Namespace) -> list[Pass]:
    """Return the passes of ``--passes`` or ``--pipeline``; an error in them is a usage error."""
    try:
        return passes_of(options.pipeline) if options.passes is None else read_passes(options.passes)
    except PassError as error:
        raise UsageError(error.message, where=error.where, fix=error.fix) from error


def _select_data(graph: Graph, options: argparse.Namespace) -> tuple[Checked | None, str]:
    """Return the data for ``--check`` and ``--bisect``, if either is given, and the source of its weights.

    Raises:
        UsageError: The graph has no such input or size, or a type that no data can be generated for.
        WeightError: The weights cannot be read.
    """
    if not (options.check or options.bisect):
        return None, ""
    inputs, sizes = parse_inputs(options.input), parse_sizes(options.size)
    seed, int_high = options.seed or 0, options.int_high or INT_HIGH
    call = make_call(graph, inputs, sizes, seed, int_high)
    weights, origin = select_weights(graph, options, seed)
    return Checked(weights=weights, calls=[(call.args, call.kwargs)], seed=seed), origin


def _find_culprit(
    graph: Graph, passes: list[Pass], data: Checked, options: argparse.Namespace
) -> Culprit | None:
    """Return the rewrite that ``--bisect`` finds; None if there is none, or without ``--bisect``."""
    if not options.bisect:
        return None
    folder = _repro_dir(options)
    return bisect(
        graph, passes, rtol=options.rtol, data=data, repro_dir=folder, max_rounds=options.max_rounds
    )


def _repro_dir(options: argparse.Namespace) -> Path:
    if options.repro_dir is not None:
        return Path(options.repro_dir)
    return Path(options.output or options.file).with_suffix(".repro")


def _print_culprit(culprit: Culprit, options: argparse.Namespace) -> None:
    """Print the rewrite, and the path of its reproduction."""
    lines = {
        "pass": culprit.pass_text,
        "rewrite": f"{culprit.rewrite.rule}, number {culprit.number} of those of all passes",
        "nodes": ", ".join(culprit.rewrite.paths) or "not stated",
        "made": ", ".join(culprit.rewrite.made) or "nothing",
        "problem": culprit.difference,
        "shown by": str(_repro_dir(options) / "repro.py"),
    }
    print_or_write_json(lambda: {"culprit": lines}, options, "the rewrite at fault")
    if is_text_wanted(options):
        print_facts(lines)
