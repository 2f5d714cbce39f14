"""``npu bench``: how long a call takes, by the executor, the interpreter and PyTorch."""

from __future__ import annotations

import argparse
import dataclasses
import time
from collections.abc import Callable
from typing import Any

import torch

from npu_ir import Graph, Interpreter, WeightError
from npu_ir.cli import factory, input_text
from npu_ir.cli.console import print_facts, print_table
from npu_ir.cli.options import add_file
from npu_ir.verify.reference import model_tensors
from npu_runtime.cli.json_file import write_json
from npu_runtime.cli.timed_graph import (
    HELP,
    add_timed_graph,
    chosen_threads,
    load_timed_graph,
    make_executor,
    timed_weights,
)
from npu_runtime.executor import IRExecutor
from npu_runtime.profiling.tables import time_text
from npu_runtime.profiling.turns import Timing, take_turns

_EPILOG = f"""\
All take turns, a burst of calls each, and the medians are compared; with the model, PyTorch in inference mode is
among them. The difference is that from the interpreter, relative to its largest value.

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
        description="Time calls of a saved graph by the executor and by the interpreter, and calls of its model.",
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
    add_file(parser, "--json", help="write the numbers as JSON")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Time calls, print and save what they take."""
    timed = load_timed_graph(options)
    args, kwargs = timed.call.args, timed.call.kwargs
    torch.manual_seed(options.seed)
    model, weights, origin = _model_and_weights(timed.graph, options)
    start = time.perf_counter()
    executor = make_executor(timed.graph, weights, options)
    compile_seconds = time.perf_counter() - start
    interpreter = Interpreter(timed.graph, weights)
    calls: dict[str, Callable[[], Any]] = {} if model is None else {"eager": _eager(model, args, kwargs)}
    calls["interpreter"] = lambda: interpreter.run(*args, **kwargs)
    calls["executor"] = lambda: executor(*args, **kwargs)
    with chosen_threads(options):
        difference = _difference(interpreter, executor, args, kwargs)
        timings = take_turns(calls, repeat=options.repeat)
        threads = torch.get_num_threads()
    data = {
        "graph": timed.graph.name,
        "threads": threads,
        "passes": options.passes,
        "backend": options.backend or ["aten"],
        "compile_seconds": compile_seconds,
        "difference": difference,
        "timings": {name: dataclasses.asdict(timing) for name, timing in timings.items()},
    }
    _print(timings)
    print_facts(
        {
            "executor": f"ready in {time_text(compile_seconds)}, {len(executor.steps):,} steps for {len(timed.graph):,} nodes",
            "difference": f"{difference:.1e}" if difference else "none",
            "threads": str(threads),
            "weights": origin,
            **timed.facts,
        }
    )
    if options.json is not None:
        write_json(data, options.json, "the numbers")


def _model_and_weights(
    graph: Graph, options: argparse.Namespace
) -> tuple[torch.nn.Module | None, dict[str, torch.Tensor], str]:
    """Return the model, if one is named, the weights for all, and where they are from."""
    if options.model is None:
        return None, *timed_weights(graph, options)
    model = factory.make_model(options.model, train=options.train)
    if options.weights is None and options.random_weights is None:
        known = (*graph.parameters, *graph.buffers)
        return (
            model,
            {name: item for name, item in model_tensors(model).items() if name in known},
            options.model,
        )
    weights, origin = timed_weights(graph, options)
    unexpected = model.load_state_dict(weights, strict=False).unexpected_keys
    if unexpected:
        raise WeightError(f"{options.model} has no {unexpected[0]!r}, which the graph has", where=origin)
    return model, weights, origin


def _eager(model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[[], Any]:
    def call() -> None:
        with torch.inference_mode():
            model(*args, **kwargs)

    return call


def _difference(
    interpreter: Interpreter, executor: IRExecutor, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> float:
    """Return by how much results of the two differ at most, relative to the largest value of a result."""
    wanted, found = interpreter.run_flat(args, kwargs)[0], executor.run_flat(args, kwargs)[0]
    pairs = zip(wanted, found, strict=True)
    return max((_relative(*pair) for pair in pairs if isinstance(pair[0], torch.Tensor)), default=0.0)


def _relative(wanted: torch.Tensor, found: torch.Tensor) -> float:
    if not wanted.numel() or wanted.layout is not torch.strided:
        return 0.0
    wide = torch.complex128 if wanted.is_complex() else torch.float64
    left, right = wanted.to(wide), found.to(wide)
    difference = torch.where(left == right, 0.0, (left - right).abs()).nan_to_num()
    largest = float(left.abs().nan_to_num().max())
    return float(difference.max()) / (largest or 1.0)


def _print(timings: dict[str, Timing]) -> None:
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
