"""What commands run: a saved graph, with weights and arguments; and the passes and backends that they name."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from npu_ir import Graph, load_ir
from npu_ir.backend import Backend
from npu_ir.cli import input_text
from npu_ir.cli.graph_call import GraphCall, graph_arguments
from npu_ir.cli.options import add_file, add_inputs, add_random_data, add_sizes, complete
from npu_ir.cli.size_text import parse_sizes, sizes_text
from npu_ir.cli.weight_choice import choose_weights
from npu_ir.errors import BackendError, UsageError
from npu_ir.random_data import needed_weights, random_tensor, random_weights
from npu_ir.serial.load import read_document
from npu_passes import Pass, PassError, all_passes, all_pipelines
from npu_passes.pass_text import parse_passes
from npu_passes.registry import passes_of
from npu_runtime.backends.registry import all_backends, find_backend

NONE = "none"


def add_graph(parser: argparse.ArgumentParser) -> None:
    """Add the graph."""
    add_file(parser, "file", help="a graph saved by npu extract or save_ir")


def add_passes(parser: argparse.ArgumentParser) -> None:
    """Add ``--passes``, which `chosen_passes` reads."""
    action = parser.add_argument(
        "--passes",
        default="default",
        metavar="NAME,NAME{OPTION=VALUE}",
        help=f"the pipeline or passes to run first; {NONE}: the graph as it is (default: default)",
    )
    complete(action, names_of_passes)


def names_of_passes() -> set[str]:
    """Return the names that ``--passes`` takes."""
    return {NONE, *all_pipelines(), *all_passes()}


def add_backends(parser: argparse.ArgumentParser, help: str) -> None:
    """Add ``--backend``, which `chosen_backends` reads."""
    action = parser.add_argument("--backend", action="append", metavar="NAME", help=help)
    complete(action, all_backends)


def add_data(parser: argparse.ArgumentParser, use: str = "") -> None:
    """Add what tells the weights and arguments of a call.

    Args:
        parser: Of the command.
        use: What they are for, at the beginning of each help.
    """
    weights = parser.add_mutually_exclusive_group()
    add_file(weights, "--weights", help=f"{use}any file that npu run takes")
    weights.add_argument("--random-weights", type=int, metavar="SEED", help=f"{use}make up weights")
    add_inputs(parser, f"{use}an argument of the graph")
    add_sizes(parser)
    add_random_data(parser)


@dataclass(frozen=True, slots=True)
class SavedGraph:
    """A graph, and a call of it.

    Attributes:
        graph: As it was saved.
        call: What it is called with.
        facts: What there is to say of the call.
    """

    graph: Graph
    call: GraphCall
    facts: dict[str, str]


def load_call(options: argparse.Namespace) -> SavedGraph:
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
    return SavedGraph(graph, call, facts)


def weights_or_random(graph: Graph, options: argparse.Namespace) -> tuple[dict[str, torch.Tensor], str]:
    """Return weights as ``npu run`` chooses them, but random ones where there are none; and where they are from."""
    is_given = options.weights is not None or options.random_weights is not None
    saved: Any = read_document(options.file)["weights"]
    if not is_given and saved is None and any(needed_weights(graph)):
        return random_weights(graph, options.seed), f"random, seed {options.seed}"
    return choose_weights(graph, options)


def chosen_passes(text: str) -> list[Pass] | None:
    """Return the passes that ``--passes`` names, a pipeline or several by name; None for none.

    Raises:
        UsageError: There is no such pass.
    """
    if text == NONE:
        return None
    with _wrong_usage():
        return passes_of(text) if text in all_pipelines() else parse_passes(text)


def chosen_backends(names: Sequence[str]) -> list[Backend]:
    """Return backends by name.

    Raises:
        UsageError: There is no such backend.
    """
    with _wrong_usage():
        return [find_backend(name) for name in names]


@contextlib.contextmanager
def _wrong_usage() -> Iterator[None]:
    """Say of a name that nobody knows that the command line is wrong."""
    try:
        yield
    except (PassError, BackendError) as error:
        raise UsageError(error.message, where=error.where, fix=error.fix) from error
