"""Options, calls, weights and executors of commands on saved graphs."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from npu_ir import Graph
from npu_ir.cli import call_arguments
from npu_ir.cli.call_arguments import GraphCall
from npu_ir.cli.options import (
    add_backends,
    add_call,
    add_file,
    add_threads,
    add_weights,
    integer_from,
    set_completions,
)
from npu_ir.cli.weight_selection import select_weights
from npu_ir.errors import BackendError, UsageError
from npu_ir.plugins.backend import Backend
from npu_passes import Pass, PassError, all_passes, all_pipelines
from npu_passes.cli.written_passes import read_passes
from npu_runtime.backends.registry import AUTO, find_backend

if TYPE_CHECKING:
    from npu_runtime.executor.executor import IRExecutor
    from npu_runtime.executor.input_updates import Updates
    from npu_runtime.executor.options import Passes

NONE = "none"
HELP = """\
Weights are those of --weights, those that were saved with FILE, or random ones. An input that is not given,
or given by its type, gets random data.
"""
BACKENDS_HELP = (
    f"who runs what it can; several in order of preference; {AUTO}: whoever is fastest (default: {AUTO} with "
    f"--passes {AUTO}, else aten)"
)


def add_graph(parser: argparse.ArgumentParser) -> None:
    """Add the argument for the graph."""
    add_file(parser, "file", help="a graph saved by npu extract or save_ir")


def add_passes(parser: argparse.ArgumentParser, default: str = AUTO) -> None:
    """Add ``--passes``, which `executor_passes` reads."""
    action = parser.add_argument(
        "--passes",
        default=default,
        metavar="NAME,NAME{OPTION=VALUE}",
        help=f"the pipeline or passes to run first; {NONE}: the graph as it is; "
        f"{AUTO}: what suits the backend (default: {default})",
    )
    set_completions(action, lambda: {AUTO, *pass_names()})


def pass_names() -> set[str]:
    """Return the names that ``--passes`` accepts."""
    return {NONE, *all_pipelines(), *all_passes()}


def add_data(parser: argparse.ArgumentParser, use: str = "") -> None:
    """Add the options for the weights and arguments of a call.

    Args:
        parser: The parser of the command.
        use: Their purpose, at the beginning of each help text.
    """
    add_weights(parser, "any file that npu run takes", use)
    add_call(parser, f"{use}an argument of the graph")


@dataclass(frozen=True, slots=True)
class SavedGraph:
    """A saved graph, and a call of it.

    ``facts`` are those about the call to print, by title.
    """

    graph: Graph
    call: GraphCall
    facts: dict[str, str]


def load_call(options: argparse.Namespace) -> SavedGraph:
    """Return the graph that the command line names, and a call of it.

    Raises:
        UsageError: The graph has no such input or size.
    """
    graph, call = call_arguments.load_call(options)
    return SavedGraph(graph, call, call.facts(options))


def executor_passes(text: str) -> Passes:
    """Return the passes of a text, as `IRExecutor` takes them; errors as for `select_passes`."""
    return AUTO if text == AUTO else select_passes(text)


def select_passes(text: str) -> list[Pass] | None:
    """Return the passes of a text; None for ``none``.

    Raises:
        UsageError: There is no such pass.
    """
    if text == NONE:
        return None
    with _as_usage_error():
        return read_passes(text)


def select_backends(names: Sequence[str] | None) -> list[Backend] | str | None:
    """Return backends by name, as `IRExecutor` takes them.

    Raises:
        UsageError: There is no such backend, or one is named beside ``"auto"``.
    """
    if not names:
        return None
    if AUTO in names:
        if len(names) > 1:
            raise UsageError(f"{AUTO} stands for all backends", fix=f"name {AUTO} alone, or others")
        return AUTO
    with _as_usage_error():
        return [find_backend(name) for name in names]


@contextlib.contextmanager
def _as_usage_error() -> Iterator[None]:
    """Turn errors about unknown names into usage errors of the command line."""
    try:
        yield
    except (PassError, BackendError) as error:
        raise UsageError(error.message, where=error.where, fix=error.fix) from error


def add_timed_graph(parser: argparse.ArgumentParser) -> None:
    """Add the options for the graph, its arguments, backends, threads and repetitions."""
    add_graph(parser)
    add_passes(parser)
    add_backends(parser, BACKENDS_HELP)
    add_threads(parser, help="threads per op (default: PyTorch's)")
    parser.add_argument(
        "--repeat", type=integer_from(1), default=20, metavar="N", help="how often to measure (default: 20)"
    )
    add_data(parser)


def make_executor(
    graph: Graph,
    weights: dict[str, torch.Tensor],
    options: argparse.Namespace,
    *,
    updates: Updates | None = "ignore",
    threads: int | None = None,
) -> IRExecutor:
    """Return the executor that the command line describes; the last options are those of `IRExecutor`.

    Raises:
        UsageError: There is no such pass or backend.
        BackendError: A backend cannot run here.
    """
    from npu_runtime.executor.executor import IRExecutor

    backends, passes = select_backends(options.backend), executor_passes(options.passes)
    return IRExecutor(
        graph,
        weights,
        backend=backends,
        passes=passes,
        updates=updates,
        threads=threads,
        tuning=options.file,
    )


def load_executor(options: argparse.Namespace) -> tuple[SavedGraph, IRExecutor, dict[str, str]]:
    """Return the graph with its call, its executor, and facts about weights and arguments to print."""
    saved = load_call(options)
    options.progress.stage("reading weights")
    weights, origin = select_weights(saved.graph, options, options.seed)
    options.progress.stage("preparing the executor")
    return saved, make_executor(saved.graph, weights, options), {"weights": origin, **saved.facts}
