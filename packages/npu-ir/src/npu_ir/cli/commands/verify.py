"""``npu verify``: comparison of a saved graph with its model."""

from __future__ import annotations

import argparse
from typing import Any

import torch

from npu_ir.cli import factory, input_text
from npu_ir.cli.call_arguments import graph_arguments
from npu_ir.cli.failures import FAILED, OK
from npu_ir.cli.input_text import parse_sizes, sizes_text
from npu_ir.cli.options import (
    add_constants,
    add_factory,
    add_file,
    add_inputs,
    add_random_data,
    add_runner,
    add_sizes,
    add_tolerances,
)
from npu_ir.cli.weight_selection import load_constants, require_no_conflict
from npu_ir.interpreter.random_data import random_tensor
from npu_ir.interpreter.runners import default_runner, find_runner
from npu_ir.serial import load_ir
from npu_ir.serial.checkpoints import load_weights
from npu_ir.verify import verify_ir

_EPILOG = f"""\
Both run on the same weights and inputs, and every result and in-place change is compared: dtypes, shapes
and integers exactly, floats within the tolerance of their dtype. The exit code is 1 where they differ, and
the first node that differs is named. An input that is not given gets random data.

{factory.HELP}
{input_text.HELP}
example:
  npu verify net.json models/net.py:make --weights net.safetensors
"""


def add_to(commands: Any) -> None:
    parser = commands.add_parser(
        "verify",
        help="compare a saved graph with its model",
        description="Compare what a saved graph and its model compute.",
        epilog=_EPILOG,
    )
    add_file(parser, "file", help="a graph saved by npu extract or save_ir")
    add_factory(parser)
    add_file(parser, "--weights", help="weights for both (default: the weights the model is made with)")
    add_constants(parser, "for both: ")
    add_inputs(parser, "an argument of both")
    add_sizes(parser)
    add_random_data(parser)
    add_runner(parser)
    add_tolerances(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Compare, print the report, and return the exit code: 1 if they differ."""
    runner = default_runner() if options.on is None else options.on
    find_runner(runner)  # refused before anything is loaded
    inputs, sizes = input_text.parse_inputs(options.input), parse_sizes(options.size)
    options.progress.stage("reading the graph")
    graph = load_ir(options.file)
    generator = torch.Generator().manual_seed(options.seed)
    call = graph_arguments(
        graph, inputs, lambda type: random_tensor(type, generator, options.int_high), sizes
    )
    torch.manual_seed(options.seed)
    options.progress.stage("making the model")
    model = factory.make_model(options.factory, train=options.train)
    weights = {} if options.weights is None else load_weights(options.weights, graph)
    constants = load_constants(options)
    require_no_conflict(graph, weights, constants, options)
    weights |= constants
    options.progress.stage("comparing")
    report = verify_ir(
        graph, model, call.args, call.kwargs, weights=weights, rtol=options.rtol, atol=options.atol, on=runner
    )
    print(report)
    print(f"graph run by: {runner}")
    if call.sizes:
        print(f"sizes: {sizes_text(call.sizes, sizes)}")
    if call.random_inputs:
        print(f"random inputs, seed {options.seed}: {', '.join(map(repr, call.random_inputs))}")
    return OK if report.ok else FAILED
