"""``npu verify``: comparison of a saved graph with its model."""

from __future__ import annotations

import argparse
from typing import Any

import torch

from npu_ir.cli import factory, input_text
from npu_ir.cli.call_arguments import load_call
from npu_ir.cli.console import print_report
from npu_ir.cli.failures import FAILED, OK
from npu_ir.cli.options import (
    add_call,
    add_constants,
    add_factory,
    add_file,
    add_runner,
    add_tolerances,
)
from npu_ir.cli.weight_selection import load_constants, require_no_conflict
from npu_ir.interpreter.runners import default_runner, find_runner
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
    add_call(parser, "an argument of both")
    add_runner(parser)
    add_tolerances(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Compare, print the report, and return the exit code: 1 if they differ."""
    runner = default_runner() if options.on is None else options.on
    find_runner(runner)  # refused before anything is loaded
    graph, call = load_call(options)
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
    facts = {"graph run by": runner, **call.facts(options)}
    print_report([str(report), *(f"{caption}: {text}" for caption, text in facts.items())])
    return OK if report.ok else FAILED
