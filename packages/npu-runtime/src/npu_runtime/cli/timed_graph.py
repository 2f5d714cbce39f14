"""What ``npu profile`` and ``npu bench`` time: a saved graph, on an executor, with weights and arguments."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from npu_ir import Graph, load_ir
from npu_ir.cli import input_text
from npu_ir.cli.graph_call import GraphCall, graph_arguments
from npu_ir.cli.options import add_file, add_inputs, add_random_data, add_sizes
from npu_ir.cli.size_text import parse_sizes, sizes_text
from npu_ir.cli.weight_choice import choose_weights
from npu_ir.errors import UsageError
from npu_ir.random_data import needed_weights, random_tensor, random_weights
from npu_ir.serial.load import read_document
from npu_passes import PassError
from npu_runtime.executor import IRExecutor

NONE = "none"

HELP = """\
Weights are those of --weights, those that were saved with FILE, or random ones. An input that is not given, or given by
its type, gets random data.
"""


def add_timed_graph(parser: argparse.ArgumentParser) -> None:
    """Add the options that tell what to run, on what, and how often."""
    add_file(parser, "file", help="a graph saved by npu extract or save_ir")
    parser.add_argument(
        "--passes",
        default="default",
        metavar="NAME,NAME{OPTION=VALUE}",
        help=f"a pipeline, or passes, to run first; {NONE}: the graph as it is (default: default)",
    )
    parser.add_argument(
        "--backend",
        action="append",
        metavar="NAME",
        help="who runs what it can; several in order of preference (default: aten)",
    )
    parser.add_argument("--threads", type=_positive, metavar="N", help="threads per op (default: PyTorch's)")
    parser.add_argument(
        "--repeat", type=_positive, default=20, metavar="N", help="how often to measure (default: 20)"
    )
    weights = parser.add_mutually_exclusive_group()
    add_file(weights, "--weights", help="any file that npu run takes")
    weights.add_argument("--random-weights", type=int, metavar="SEED", help="make up weights")
    add_inputs(parser, "an argument of the graph")
    add_sizes(parser)
    add_random_data(parser)


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 on")
    return int(text)


@dataclass(frozen=True, slots=True)
class TimedGraph:
    """What to run.

    Attributes:
        graph: As it was saved.
        call: What it is called with.
        facts: What there is to say of the two.
    """

    graph: Graph
    call: GraphCall
    facts: dict[str, str]


def load_timed_graph(options: argparse.Namespace) -> TimedGraph:
    """Return the graph that the command line names, and a call of it.

    Raises:
        UsageError: The graph has no such input or size.
    """
    inputs, sizes = input_text.parse_inputs(options.input), parse_sizes(options.size)
    graph = load_ir(options.file)
    generator = torch.Generator().manual_seed(options.seed)
    call = graph_arguments(
        graph, inputs, lambda type: random_tensor(type, generator, options.int_high), sizes
    )
    facts = {}
    if call.sizes:
        facts["sizes"] = sizes_text(call.sizes, sizes)
    if call.invented:
        facts["random data"] = f"{', '.join(map(repr, call.invented))}, seed {options.seed}"
    return TimedGraph(graph, call, facts)


def timed_weights(graph: Graph, options: argparse.Namespace) -> tuple[dict[str, torch.Tensor], str]:
    """Return weights as ``npu run`` chooses them, but random ones where there are none; and where they are from."""
    is_given = options.weights is not None or options.random_weights is not None
    saved: Any = read_document(options.file)["weights"]
    if not is_given and saved is None and any(needed_weights(graph)):
        return random_weights(graph, options.seed), f"random, seed {options.seed}"
    return choose_weights(graph, options)


def make_executor(graph: Graph, weights: dict[str, torch.Tensor], options: argparse.Namespace) -> IRExecutor:
    """Return the executor that the command line asks for.

    Raises:
        UsageError: There is no such pass.
        BackendError: There is no such backend.
    """
    passes = None if options.passes == NONE else options.passes
    try:
        return IRExecutor(graph, weights, backend=options.backend or "aten", passes=passes)
    except PassError as error:
        raise UsageError(error.message, where=error.where, fix=error.fix) from error


@contextlib.contextmanager
def chosen_threads(options: argparse.Namespace) -> Iterator[None]:
    """Let ops use as many threads as the command line says."""
    before = torch.get_num_threads()
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
