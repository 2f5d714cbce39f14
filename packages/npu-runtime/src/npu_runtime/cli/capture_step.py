"""``npu capture-step``: capture of a training step as a graph."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from npu_ir import Graph, save_ir
from npu_ir.cli import factory
from npu_ir.cli.console import print_facts
from npu_ir.cli.facts import file_facts, files_text, graph_facts, graph_lines
from npu_ir.cli.options import add_graph_output, add_output_folder, set_completions
from npu_ir.core.node import external_names
from npu_ir.errors import FactoryError, UsageError
from npu_passes.manager.manager import PassManager
from npu_runtime.cli.saved_graph import NONE, pass_names, select_passes

if TYPE_CHECKING:
    from npu_runtime.training.tracing.traced_step import TracedStep

_PARTS = ("model", "optimizer", "loss_fn", "example_batch")
_OPTIONS = ("accumulate", "clip_grad_norm", "clip_grad_value", "autocast", "modules", "optimizers")
_FIX = (
    "return (model, optimizer, loss_fn, example_batch), a dict of these, "
    "or a pair of a step function and its batch"
)
_EPILOG = """\
steps:
  MODULE:FACTORY names a function that returns the parts of a step:
    return model, optimizer, loss_fn, example_batch
    return {"model": model, "optimizer": optimizer, "loss_fn": loss_fn, "example_batch": batch,
            "clip_grad_norm": 1.0}
    return step_fn, example_batch        (a function with zero_grad(), backward() and step())
  MODULE is imported with the current folder on the path, or is the path of a .py file. Models keep the mode
  they have. Arguments are Python literals, in quotes for the shell: 'steps.py:make(0.1, width=64)'

example:
  npu capture-step steps.py:make -o step.json --save-weights
  npu run step.json --input group0.lr=0.01
  npu capture-step steps.py:make --passes default --text
"""


def add_to(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "capture-step",
        help="take the graph of a training step",
        description="Take the graph of a training step - forward, backward and optimizer - and save it.",
        epilog=_EPILOG,
    )
    parser.add_argument(
        "factory",
        metavar="MODULE:FACTORY",
        help="a function that returns the parts of the step: steps.py:make",
    )
    add_graph_output(parser, "where to save the graph, as JSON (default: nowhere)")
    parser.add_argument(
        "--save-weights",
        action="store_true",
        help="save parameters, buffers and the first state of the optimizer too, beside the graph",
    )
    passes = parser.add_argument(
        "--passes",
        default=NONE,
        metavar="NAME",
        help="the pipeline or passes to run over the graph (default: none)",
    )
    set_completions(passes, pass_names)
    parser.add_argument("--text", action="store_true", help="print the text form of the graph, nothing else")
    add_output_folder(
        parser,
        "--dump",
        help="write the graph, and the ops that run it, as text and JSON into this folder",
    )
    parser.add_argument("--name", help="name of the graph (default: the class of the model, with _step)")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Trace the step, save it, and print its facts."""
    if options.save_weights and options.output is None:
        raise UsageError("--save-weights needs a place", fix="give -o FILE")
    passes = select_passes(options.passes)
    options.progress.stage("making the parts of the step")
    parts = _call_factory(options.factory)
    options.progress.stage("tracing the step")
    start = time.perf_counter()
    step = _trace(parts, options.name)
    graph = step.graph if passes is None else PassManager(passes).optimize(step.graph)
    seconds = time.perf_counter() - start
    options.progress.stage("saving")
    lines = graph_lines(graph_facts(graph))
    if options.output is not None:
        save_ir(
            graph, options.output, weights=_initial_weights(graph, step) if options.save_weights else None
        )
        lines["saved"] = files_text(file_facts(options.output)["files"])
    if options.dump is not None:
        lines["dumped"] = "\n".join(map(str, _dump(graph, options.dump)))
    lines["time"] = f"{seconds:.1f} s to capture"
    if options.text:
        print(graph, end="")
    else:
        print_facts(lines)


def _call_factory(reference: str) -> dict[str, Any]:
    """Call `MODULE:FACTORY`, and return its results as arguments of `compile_ir`.

    Raises:
        UsageError: There is no such factory, or it does not take these arguments.
        FactoryError: The user's code raises, or returns something else than the parts of a step.
    """
    make = factory.find_factory(reference)
    parts = factory.call_factory(make, reference)
    if isinstance(parts, tuple) and len(parts) == len(_PARTS):
        return dict(zip(_PARTS, parts, strict=True))
    if isinstance(parts, tuple) and len(parts) == 2:
        return dict(zip(("model", "example_batch"), parts, strict=True))
    if not isinstance(parts, Mapping):
        what = f"a tuple of {len(parts)}" if isinstance(parts, tuple) else factory.describe_kind(parts)
        raise FactoryError(
            f"{reference} returns {what}, not a training step",
            where=factory.definition_location(make),
            fix=_FIX,
        )
    unknown = [key for key in parts if key not in (*_PARTS, *_OPTIONS)]
    missing = [key for key in ("model", "example_batch") if key not in parts]
    if unknown or missing:
        problem = f"no {missing[0]!r}" if missing else f"{unknown[0]!r}, which is not a part of a step"
        raise FactoryError(
            f"the dict of {reference} has {problem}",
            where=factory.definition_location(make),
            fix=f"its keys are {', '.join((*_PARTS, *_OPTIONS))}",
        )
    return dict(parts)


def _trace(parts: dict[str, Any], name: str | None) -> TracedStep:
    from npu_runtime.training.trace import trace_step

    return trace_step(**parts, name=name)


def _initial_weights(graph: Graph, step: TracedStep) -> dict[str, Any]:
    """Return the initial weights of a step that the graph has arguments for, by name."""
    wanted = {name for value in graph.weights for name in external_names(value)}
    return {name: tensor.detach() for name, tensor in step.weights().items() if name in wanted}


def _dump(graph: Graph, folder: Path) -> tuple[Path, ...]:
    from npu_runtime.backends.registry import named_backends
    from npu_runtime.lowering.lowered_graph import lower
    from npu_runtime.training.dumps.write_dumps import graph_dump, lowered_dumps, write_dumps

    return write_dumps(folder, (graph_dump(graph), *lowered_dumps(lower(graph, named_backends(())))))
