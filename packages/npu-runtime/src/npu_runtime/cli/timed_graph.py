"""Command-line options of ``npu profile``, ``npu bench`` and ``npu explain`` for a timed executor."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch

from npu_ir import Graph
from npu_ir.cli.options import add_backends, integer_from
from npu_runtime.cli.saved_graph import (
    add_data,
    add_graph,
    add_passes,
    select_backends,
    select_passes,
)

if TYPE_CHECKING:
    from npu_runtime.executor.executor import IRExecutor

HELP = """\
Weights are those of --weights, those that were saved with FILE, or random ones. An input that is not given,
or given by its type, gets random data.
"""


def add_timed_graph(parser: argparse.ArgumentParser) -> None:
    """Add the options for the graph, its arguments, backends, threads and repetitions."""
    add_graph(parser)
    add_passes(parser)
    add_backends(parser, "who runs what it can; several in order of preference (default: aten)")
    parser.add_argument(
        "--threads", type=integer_from(1), metavar="N", help="threads per op (default: PyTorch's)"
    )
    parser.add_argument(
        "--repeat", type=integer_from(1), default=20, metavar="N", help="how often to measure (default: 20)"
    )
    add_data(parser)


def make_executor(graph: Graph, weights: dict[str, torch.Tensor], options: argparse.Namespace) -> IRExecutor:
    """Return the executor that the command line describes.

    Raises:
        UsageError: There is no such pass or backend.
        BackendError: A backend cannot run here.
    """
    from npu_runtime.executor.executor import IRExecutor

    backends, passes = select_backends(options.backend or ["aten"]), select_passes(options.passes)
    return IRExecutor(graph, weights, backend=backends, passes=passes, updates="ignore")


@contextlib.contextmanager
def set_threads(options: argparse.Namespace) -> Iterator[None]:
    """Set the number of threads of ops to that of the command line, for the block."""
    before = torch.get_num_threads()
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
