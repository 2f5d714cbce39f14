"""``npu bench``: times of a call by the executor, the interpreter, PyTorch and peers."""

from __future__ import annotations

import argparse
import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from npu_ir import Graph, WeightError
from npu_ir.cli import factory, input_text
from npu_ir.cli.console import print_facts, print_report, print_table
from npu_ir.cli.failures import FAILED, OK
from npu_ir.cli.json_output import add_json, is_text_wanted, print_or_write_json
from npu_ir.cli.options import set_completions
from npu_ir.cli.quantities import count_text, time_text
from npu_ir.cli.weight_selection import is_in_state_dict, load_constants, select_weights
from npu_runtime.cli.result_difference import result_difference
from npu_runtime.cli.saved_graph import HELP, NONE, add_timed_graph, load_call
from npu_runtime.cli.timed_runners import (
    TimedRunner,
    eager_runner,
    executor_runner,
    interpreter_runner,
    peer_runners,
    select_peers,
    timed_executor,
)
from npu_runtime.interop.peers import PEERS

if TYPE_CHECKING:
    from npu_runtime.diagnostics.profile import Timing

_TOLERANCE = 0.01  # of the largest value; half precision may be off by as much
_EPILOG = f"""\
The executor, the interpreter and, if --model is given, PyTorch in inference mode run in turns, some calls
at a time; the medians are compared. So do other runtimes where they are installed: ONNX Runtime (packages
onnxruntime, onnx and onnxscript) and OpenVINO (openvino), which take arrays of NumPy, compute in float32 and
use as many threads.

The difference is that from the interpreter, relative to its largest value. If that of the executor is not a
number, because one of the two returns NaN or another shape, the exit code is 1. Time until a runner is ready
is that to make the executor of a graph, or to compile the graph in the form of another runtime.

{HELP}
{factory.HELP}
{input_text.HELP}
example:
  npu bench net.json
  npu bench net.json --model models/net.py:make --passes cpu --threads 1
"""


def add_to(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "bench",
        help="time calls of a saved graph",
        description="Time calls of a saved graph by the executor and by the interpreter, "
        "and calls of its model.",
        epilog=_EPILOG,
    )
    add_timed_graph(parser)
    parser.add_argument(
        "--model",
        metavar="MODULE:FACTORY",
        help="what makes the model, to time it, too; its weights are taken if no others are given",
    )
    parser.add_argument(
        "--train", action="store_true", help="take the model in train mode (default: eval mode)"
    )
    peers = parser.add_argument(
        "--peers",
        metavar="NAME,NAME",
        help=f"the other runtimes to time, of {', '.join(PEERS)}; {NONE}: none of them (default: those that "
        "are installed)",
    )
    set_completions(peers, lambda: (*PEERS, NONE))
    add_json(parser, "the numbers")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Time calls, print and save the times, and return the exit code: whether the results can be compared."""
    from npu_ir import Interpreter
    from npu_runtime.diagnostics.profile import take_turns
    from npu_runtime.executor.engine import thread_count

    peers = select_peers(options.peers)
    saved = load_call(options)
    torch.manual_seed(options.seed)
    options.progress.stage("reading weights")
    model, weights, origin = _model_and_weights(saved.graph, options)
    options.progress.stage("preparing the executor")
    executor, ready_seconds = timed_executor(saved.graph, weights, options)
    runners = [
        *([] if model is None else [eager_runner(model, saved.call)]),
        interpreter_runner(Interpreter(saved.graph, weights), saved.call),
        executor_runner(executor, ready_seconds, saved.call),
    ]
    with thread_count(options.threads):
        others, refusals = peer_runners(peers, saved.graph, weights, saved.call, options)
        runners += others
        options.progress.stage("timing calls")
        differences = _differences(runners, options.seed)
        timings = take_turns({runner.name: runner.call for runner in runners}, repeat=options.repeat)
        threads = torch.get_num_threads()
    ready = {runner.name: _numbers(runner, differences) for runner in runners if runner.name in differences}
    data = {
        "graph": saved.graph.name,
        "threads": threads,
        "passes": options.passes,
        "backend": options.backend or ["aten"],
        **ready.pop("executor"),
        "peers": ready | {name: {"error": text} for name, text in refusals.items()},
        "timings": {name: dataclasses.asdict(timing) for name, timing in timings.items()},
    }
    print_or_write_json(lambda: data, options, "the numbers")
    if is_text_wanted(options):
        _print_times(runners, timings, differences)
        _print_notes(runners, differences, refusals)
        steps, nodes = count_text(len(executor.instructions), "step"), count_text(len(saved.graph), "node")
        facts = {"executor": f"{steps} for {nodes}", "threads": str(threads), "weights": origin}
        print_facts({**facts, **saved.facts})
    return OK if math.isfinite(differences["executor"]) else FAILED


def _differences(runners: Sequence[TimedRunner], seed: int) -> dict[str, float]:
    """Return the differences from the interpreter by name, all with the same random numbers."""
    results = {}
    for runner in runners:
        if runner.results is not None:
            torch.manual_seed(seed)
            results[runner.name] = runner.results()
    wanted = results.pop("interpreter")
    return {name: result_difference(wanted, found) for name, found in results.items()}


def _numbers(runner: TimedRunner, differences: Mapping[str, float]) -> dict[str, float | None]:
    difference = differences[runner.name]
    return {
        "compile_seconds": runner.ready_seconds,
        "difference": difference if math.isfinite(difference) else None,
    }


def _model_and_weights(
    graph: Graph, options: argparse.Namespace
) -> tuple[torch.nn.Module | None, dict[str, torch.Tensor], str]:
    """Return the model if one is named, the weights for all, and their origin as text."""
    if options.model is None:
        return None, *select_weights(graph, options, options.seed)
    from npu_ir.verify.reference import model_tensors

    model = factory.make_model(options.model, train=options.train)
    if options.weights is None and options.random_weights is None:
        known = (*graph.parameters, *graph.buffers)
        return (
            model,
            {name: item for name, item in model_tensors(model).items() if name in known}
            | load_constants(options),
            options.model,
        )
    weights, origin = select_weights(graph, options, options.seed)
    state = {name: tensor for name, tensor in weights.items() if is_in_state_dict(graph, name)}
    try:
        unexpected = model.load_state_dict(state, strict=False).unexpected_keys
    except RuntimeError as error:
        raise WeightError(
            f"{options.model} does not take the weights of the graph: {error}",
            where=origin,
            fix="name the model that the graph was captured from",
        ) from error
    if unexpected:
        raise WeightError(
            f"{options.model} has no {unexpected[0]!r}, which the graph has",
            where=origin,
            fix="name the model that the graph was captured from",
        )
    return model, weights, origin


def _print_times(
    runners: Sequence[TimedRunner], timings: Mapping[str, Timing], differences: Mapping[str, float]
) -> None:
    base = runners[0].name
    rows = [
        (
            runner.title,
            time_text(timings[runner.name].median),
            time_text(timings[runner.name].fastest),
            f"{timings[runner.name].median / timings[base].median:.2f}x",
            _difference_text(differences[runner.name]) if runner.name in differences else "",
            "" if runner.ready_seconds is None else time_text(runner.ready_seconds),
        )
        for runner in runners
    ]
    print_table(("run by", "median", "fastest", f"to {base}", "difference", "ready in"), rows)
    print()


def _difference_text(difference: float) -> str:
    if not math.isfinite(difference):
        return "undefined"
    return f"{difference:.1e}" if difference else "none"


def _print_notes(
    runners: Sequence[TimedRunner], differences: Mapping[str, float], refusals: Mapping[str, str]
) -> None:
    """Print who cannot run the graph, and whose results are wrong."""
    wrong = [_wrong_result(runner, differences.get(runner.name, 0.0)) for runner in runners]
    notes = [*refusals.values(), *filter(None, wrong)]
    if notes:
        print_report([*notes, ""])


def _wrong_result(runner: TimedRunner, difference: float) -> str | None:
    """Return what is wrong with results; how far the executor may be off is for its passes and backends."""
    is_ours = runner.name == "executor"
    if not math.isfinite(difference):
        what = "gives NaN, infinities or shapes that the interpreter does not"
        return f"the executor {what}: npu compare shows where" if is_ours else f"{runner.title} {what}"
    if difference <= _TOLERANCE or is_ours:
        return None
    return f"{runner.title} gives other results, off by {difference:.2g} of the largest value"
