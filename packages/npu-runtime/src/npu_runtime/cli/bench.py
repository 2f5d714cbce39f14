"""``npu bench``: times of a call by the executor, the interpreter and PyTorch."""

from __future__ import annotations

import argparse
import dataclasses
import math
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from npu_ir import Graph, WeightError
from npu_ir.cli import factory, input_text
from npu_ir.cli.console import print_facts, print_table
from npu_ir.cli.failures import FAILED, OK
from npu_ir.cli.options import add_output
from npu_ir.cli.quantities import count_text, time_text
from npu_ir.cli.weight_selection import is_in_state_dict, load_constants, select_weights
from npu_ir.core.literals import same_literal
from npu_ir.core.tensor_bytes import largest_magnitude, same_data
from npu_runtime.cli.saved_graph import (
    HELP,
    SavedGraph,
    add_timed_graph,
    load_call,
    make_executor,
    write_json,
)

if TYPE_CHECKING:
    from npu_ir import Interpreter
    from npu_ir.cli.call_arguments import GraphCall
    from npu_runtime.diagnostics.profile import Timing
    from npu_runtime.executor.executor import IRExecutor

_EPILOG = f"""\
The executor, the interpreter and, if --model is given, PyTorch in inference mode run in turns, some calls
at a time; the medians are compared. The difference is that from the interpreter, relative to its largest
value. If it is not a number, because one of the two returns NaN or another shape, the exit code is 1.

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
    add_output(parser, "--json", help="write the numbers as JSON")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Time calls, print and save the times, and return the exit code: whether the results can be compared."""
    from npu_ir import Interpreter
    from npu_runtime.diagnostics.profile import take_turns
    from npu_runtime.executor.engine import thread_count

    saved = load_call(options)
    torch.manual_seed(options.seed)
    options.progress.stage("reading weights")
    model, weights, origin = _model_and_weights(saved.graph, options)
    options.progress.stage("preparing the executor")
    make_executor(saved.graph, weights, options)  # not timed: the first one imports modules and loads plugins
    start = time.perf_counter()
    executor = make_executor(saved.graph, weights, options)
    compile_seconds = time.perf_counter() - start
    interpreter = Interpreter(saved.graph, weights)
    calls = _calls(model, interpreter, executor, saved.call)
    options.progress.stage("timing calls")
    with thread_count(options.threads):
        difference = _difference((interpreter, executor), saved, options.seed)
        timings = take_turns(calls, repeat=options.repeat)
        threads = torch.get_num_threads()
    is_number = math.isfinite(difference)
    _print(timings)
    print_facts(
        {
            "executor": f"ready in {time_text(compile_seconds)}, "
            f"{count_text(len(executor.instructions), 'step')} for {count_text(len(saved.graph), 'node')}",
            "difference": _difference_text(difference),
            "threads": str(threads),
            "weights": origin,
            **saved.facts,
        }
    )
    if options.json is not None:
        data = {
            "graph": saved.graph.name,
            "threads": threads,
            "passes": options.passes,
            "backend": options.backend or ["aten"],
            "compile_seconds": compile_seconds,
            "difference": difference if is_number else None,
            "timings": {name: dataclasses.asdict(timing) for name, timing in timings.items()},
        }
        write_json(data, options.json, "the numbers")
    return OK if is_number else FAILED


def _difference(runners: Sequence[Any], saved: SavedGraph, seed: int) -> float:
    """Return the difference of the results of two runners, with the same random numbers."""
    results = []
    for runner in runners:
        torch.manual_seed(seed)
        results.append(runner.run_flat(saved.call.args, saved.call.kwargs))
    return result_difference(*results)


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


def _calls(
    model: torch.nn.Module | None, interpreter: Interpreter, executor: IRExecutor, call: GraphCall
) -> dict[str, Callable[[], Any]]:
    """Return the functions to time, by name."""
    calls: dict[str, Callable[[], Any]] = {} if model is None else {"eager": partial(_eager, model, call)}
    calls["interpreter"] = lambda: interpreter.run(*call.args, **call.kwargs)
    calls["executor"] = lambda: executor(*call.args, **call.kwargs)
    return calls


def _eager(model: torch.nn.Module, call: GraphCall) -> None:
    with torch.inference_mode():
        model(*call.args, **call.kwargs)


def _difference_text(difference: float) -> str:
    if not math.isfinite(difference):
        return (
            "the executor gives NaN, infinities or shapes that the interpreter does not: "
            "npu compare shows where"
        )
    return f"{difference:.1e}" if difference else "none"


def _print(timings: Mapping[str, Timing]) -> None:
    base = next(iter(timings))
    rows = [
        (
            name,
            time_text(timing.median),
            time_text(timing.fastest),
            f"{timing.median / timings[base].median:.2f}x",
        )
        for name, timing in timings.items()
    ]
    print_table(("run by", "median", "fastest", f"to {base}"), rows)
    print()


# The return type of `run_flat`: flat results, and updates by name.
Results = tuple[Sequence[Any], Mapping[str, torch.Tensor]]


def result_difference(wanted: Results, found: Results) -> float:
    """Return the largest difference of a result or update, relative to the largest expected element.

    It is infinite if it cannot be computed: dtypes or shapes differ, or elements are NaN or infinite in one
    only.
    """
    pairs = [
        *zip(wanted[0], found[0], strict=True),
        *((item, found[1].get(name)) for name, item in wanted[1].items()),
    ]
    return max((_relative_difference(*pair) for pair in pairs), default=0.0)


def _relative_difference(wanted: Any, found: Any) -> float:
    from npu_runtime.diagnostics.compare.metrics import measure, to_float64

    if not isinstance(wanted, torch.Tensor) or not isinstance(found, torch.Tensor):
        return 0.0 if same_literal(wanted, found) else math.inf
    if same_data(wanted, found):
        return 0.0
    measured, exact = measure(found, wanted), to_float64(wanted)
    if wanted.dtype != found.dtype or exact is None or math.isnan(measured.max_abs) or measured.unlike:
        return math.inf
    return measured.max_abs / (largest_magnitude(exact) or 1.0)
