"""``npu explain``: the backend of each node of a saved graph, and the reasons of the others."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

import torch

from npu_ir import load_ir
from npu_ir.cli import input_text
from npu_ir.cli.console import print_facts, print_report
from npu_ir.cli.failures import FAILED, OK
from npu_ir.cli.input_text import parse_sizes
from npu_ir.cli.json_output import add_json, is_text_wanted, print_or_write_json
from npu_ir.cli.options import INT_HIGH, add_backends
from npu_ir.errors import UsageError
from npu_runtime.backends.registry import named_backends
from npu_runtime.cli.saved_graph import (
    BACKENDS_HELP,
    add_data,
    add_graph,
    add_passes,
    executor_passes,
    load_executor,
    select_backends,
)

if TYPE_CHECKING:
    from npu_runtime.diagnostics.explain import Explanation

_QUANTITIES = {"flops": "FLOPs", "count": "nodes", "time": "time"}

_EPILOG = f"""\
Backends are asked in the order in which they are given; ATen runs the nodes that all of them refuse.
Nothing is run, and no weights are needed: graphs of any size will do. With --time the graph is run, on the
weights of --weights, those that were saved with FILE, or random ones; inputs that are not given get random
data.

{input_text.HELP}
example:
  npu explain net.json --backend cuda
  npu explain net.json --backend cuda --fail-under 95 --by flops
  npu explain net.json --backend cuda --time --weights net.safetensors --json explained.json
"""


def add_to(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "explain",
        help="say which backend runs each node of a saved graph, and why not another",
        description="Say for every node of a saved graph which backend runs it, and why the others do not.",
        epilog=_EPILOG,
    )
    add_graph(parser)
    add_backends(parser, BACKENDS_HELP)
    add_passes(parser)
    add_json(parser, "all of it")
    parser.add_argument(
        "--fail-under",
        type=_parse_percent,
        metavar="PCT",
        help="exit with 1 where the backends run less of the graph than this",
    )
    parser.add_argument("--by", choices=tuple(_QUANTITIES), help="what --fail-under counts (default: flops)")
    parser.add_argument(
        "--time", action="store_true", help="run the graph, and say how long each backend takes"
    )
    add_data(parser, "for --time: ")
    parser.set_defaults(
        run=run, seed=None, int_high=None
    )  # None, so that `_require_effective_options` sees those given


def _parse_percent(text: str) -> float:
    try:
        number = float(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from error
    if not 0 <= number <= 100:
        raise argparse.ArgumentTypeError(f"{text!r} is not a percentage from 0 to 100")
    return number


def run(options: argparse.Namespace) -> int:
    """Explain the graph, print and save the explanation, and return the exit code of ``--fail-under``."""
    from npu_runtime.diagnostics.explain.explanation import explanation_parts

    _require_effective_options(options)
    explanation, facts = _explain_timed(options) if options.time else _explain_untimed(options)
    print_or_write_json(explanation.to_dict, options, "the explanation")
    if is_text_wanted(options):
        print_report(explanation_parts(explanation))
        if facts:
            print()
            print_facts(facts)
    return OK if options.fail_under is None else _check_share(explanation, options)


def _require_effective_options(options: argparse.Namespace) -> None:
    """Raise for options that would be ignored."""
    if options.by is not None and options.fail_under is None:
        raise UsageError("--by is for --fail-under", fix="add --fail-under PCT, or leave it out")
    if options.by == "time" and not options.time:
        raise UsageError("--by time needs times", fix="add --time")
    data = (options.weights, options.random_weights, options.constants, options.seed, options.int_high)
    if not options.time and (options.input or any(item is not None for item in data)):
        raise UsageError(
            "nothing is run without --time, so no weights and no inputs are used",
            fix="add --time, or leave out the data",
        )


def _explain_untimed(options: argparse.Namespace) -> tuple[Explanation, dict[str, str]]:
    """Return the explanation of the graph for the sizes that are given, and a remark about open ones."""
    from npu_runtime.diagnostics.explain import explain_graph
    from npu_runtime.executor.fixed_sizes import open_sizes
    from npu_runtime.executor.options import default_backend, optimize_graph, resolve_passes, resolve_tuning

    graph = load_ir(options.file).specialize(parse_sizes(options.size))
    options.progress.stage("running passes and asking backends")
    wanted = executor_passes(options.passes)
    given = select_backends(options.backend)
    backends = named_backends(default_backend(wanted) if given is None else given)
    measured = resolve_tuning(options.file, backends, None)
    passes = resolve_passes(wanted, torch.device("cpu"), backends, measured)
    names = open_sizes(graph)
    given_as = " ".join(f"--size {name}=N" for name in names)
    remark = (
        {"open sizes": f"a call runs a program for its sizes, which {given_as} explains"} if names else {}
    )
    return explain_graph(optimize_graph(graph, passes), backends, measured), remark


def _explain_timed(options: argparse.Namespace) -> tuple[Explanation, dict[str, str]]:
    """Return the explanation with times, and facts about the weights and arguments of the run."""
    from npu_runtime.diagnostics.explain import explain

    options.seed = 0 if options.seed is None else options.seed
    options.int_high = INT_HIGH if options.int_high is None else options.int_high
    saved, executor, facts = load_executor(options)
    options.progress.stage("timing calls")
    return explain(executor, saved.call.args, saved.call.kwargs), facts


def _check_share(explanation: Explanation, options: argparse.Namespace) -> int:
    """Print the share of the named backends against ``--fail-under``, and return the exit code."""
    by = options.by or "flops"
    named = list(dict.fromkeys(options.backend or ["aten"]))
    share = 100 * sum(explanation.share(name, by) for name in named)
    is_enough = share >= options.fail_under
    if is_text_wanted(options):
        verdict = f"{'at least' if is_enough else 'less than'} {options.fail_under:g}%"
        print(f"\n{' and '.join(named)}: {share:.1f}% of the {_QUANTITIES[by]}, {verdict}")
    return OK if is_enough else FAILED
