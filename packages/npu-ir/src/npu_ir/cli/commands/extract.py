"""``npu extract``: extraction of the graph of a model."""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Iterator
from typing import Any

import torch

from npu_ir.capture import extract_ir
from npu_ir.capture.export_messages import suggested_sizes
from npu_ir.cli import dynamic, factory, input_text
from npu_ir.cli.call_arguments import empty_tensor, model_arguments, require_arguments
from npu_ir.cli.console import print_facts
from npu_ir.cli.facts import file_facts, files_text, graph_facts, graph_lines
from npu_ir.cli.options import NOT_SAVED, add_factory, add_graph_output, add_inputs
from npu_ir.core.node import external_names
from npu_ir.errors import ExportError, UsageError
from npu_ir.graph.graph import Graph
from npu_ir.serial import save_ir

_EPILOG = f"""\
{factory.HELP}
{input_text.HELP}
{dynamic.HELP}
example:
  npu extract models/net.py:make --input "x=float32[1,3,224,224]" -o net.json
  npu extract models/net.py:make -i "x=f32[8,3,64,64]" --dynamic x:0=batch --dynamic batch=1..64 -o net.json
"""


def add_to(commands: Any) -> None:
    parser = commands.add_parser(
        "extract",
        help="take the graph of a model",
        description="Take the graph of a model and save it.",
        epilog=_EPILOG,
    )
    add_factory(parser)
    add_inputs(parser, "an argument of the model; only shapes, dtypes and Python values count")
    parser.add_argument(
        "-d",
        "--dynamic",
        action="append",
        default=[],
        metavar="NAME:AXIS=SYMBOL",
        help="sizes that the graph leaves open (default: none)",
    )
    add_graph_output(parser, "where to save the graph, as JSON; its constants go to a file beside it")
    parser.add_argument(
        "--meta",
        action="store_true",
        help="make the model without weights, however large it is; buffers are computed",
    )
    parser.add_argument(
        "--save-weights", action="store_true", help="save the model's weights too, beside the graph"
    )
    parser.add_argument("--name", help="name of the graph (default: the class of the model)")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    _require_consistent(options)
    args, kwargs = model_arguments(input_text.parse_inputs(options.input), empty_tensor)
    sizes = dynamic.parse_dynamic(options.dynamic)
    options.progress.stage("making the model")
    model, shapes = factory.make(options.factory, meta=options.meta, train=options.train)
    require_arguments(model, args, kwargs)
    if options.dynamic:
        if shapes is not None:
            problem = f"--dynamic is given, and {options.factory} says itself which sizes are open"
            raise UsageError(problem, fix="leave out --dynamic")
        shapes = dynamic.dynamic_shapes(sizes, model, args, kwargs)
    options.progress.stage("capturing")
    start = time.perf_counter()
    with _suggested_options(options):
        graph = extract_ir(model, args, kwargs, name=options.name, dynamic_shapes=shapes)
    seconds = time.perf_counter() - start
    options.progress.stage("saving")
    lines = graph_lines(graph_facts(graph))
    if options.output is not None:
        weights = _select_weights(graph, model) if options.save_weights else None
        save_ir(graph, options.output, weights=weights)
        lines["saved"] = files_text(file_facts(options.output)["files"])
    else:
        lines["saved"] = NOT_SAVED
    lines["time"] = f"{seconds:.1f} s to extract"
    print_facts(lines)


def _require_consistent(options: argparse.Namespace) -> None:
    if options.save_weights and options.output is None:
        raise UsageError("--save-weights needs a place", fix="give -o FILE")
    if options.save_weights and options.meta:
        raise UsageError("a model made with --meta has no weights to save", fix="leave out one of the two")


@contextlib.contextmanager
def _suggested_options(options: argparse.Namespace) -> Iterator[None]:
    """Translate the sizes that torch.export suggests to ``--dynamic`` options, in the fix of the error."""
    try:
        yield
    except ExportError as error:
        if options.dynamic and (fix := dynamic.suggest_options(suggested_sizes(str(error.__cause__)))):
            error.fix = fix
        raise


def _select_weights(graph: Graph, model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return the weights of the model that the graph has; the model may have more."""
    wanted = {name for value in graph.weights for name in external_names(value)}
    return {name: tensor for name, tensor in model.state_dict().items() if name in wanted}
