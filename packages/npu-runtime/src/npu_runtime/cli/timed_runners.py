"""Runners that ``npu bench`` times: PyTorch, the interpreter, the executor and peers, each with its call."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from npu_ir import ExecutionError, Graph
from npu_ir.cli.call_arguments import GraphCall
from npu_ir.errors import UsageError
from npu_runtime.cli.result_difference import Results
from npu_runtime.cli.saved_graph import NONE, make_executor
from npu_runtime.interop.peers import PEERS, Peer, PeerGraph

if TYPE_CHECKING:
    from npu_ir import Interpreter
    from npu_runtime.executor.executor import IRExecutor

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class TimedRunner:
    """One way to run a graph, made ready.

    Attributes:
        name: Its name for programs.
        title: Its name for readers.
        call: What is timed.
        results: Makes one call, and returns its results; None where they are not compared.
        ready_seconds: The time to make it ready; None where there is nothing to do.
    """

    name: str
    title: str
    call: Callable[[], Any]
    results: Callable[[], Results] | None = None
    ready_seconds: float | None = None


def select_peers(text: str | None) -> dict[str, Peer]:
    """Return the peers of a text by name; without one, those that are installed.

    Raises:
        UsageError: There is no such peer, or it is not installed.
    """
    if text is None:
        return {name: peer for name, peer in PEERS.items() if not peer.missing()}
    names = [] if text == NONE else text.split(",")
    for name in names:
        if name not in PEERS:
            raise UsageError(f"there is no peer {name!r}", fix=f"name {', '.join(PEERS)}, or {NONE}")
        peer = PEERS[name]
        if missing := peer.missing():
            raise UsageError(
                f"{peer.title} cannot run: {missing[0]} is not installed",
                fix=f"python -m pip install {' '.join(peer.packages)}",
            )
    return {name: PEERS[name] for name in names}


def eager_runner(model: torch.nn.Module, call: GraphCall) -> TimedRunner:
    return TimedRunner("eager", "eager", partial(_eager, model, call))


def _eager(model: torch.nn.Module, call: GraphCall) -> None:
    with torch.inference_mode():
        model(*call.args, **call.kwargs)


def interpreter_runner(interpreter: Interpreter, call: GraphCall) -> TimedRunner:
    return TimedRunner(
        "interpreter",
        "interpreter",
        lambda: interpreter.run(*call.args, **call.kwargs),
        lambda: interpreter.run_flat(call.args, call.kwargs),
    )


def executor_runner(executor: IRExecutor, ready_seconds: float, call: GraphCall) -> TimedRunner:
    return TimedRunner(
        "executor",
        "executor",
        lambda: executor(*call.args, **call.kwargs),
        lambda: executor.run_flat(call.args, call.kwargs),
        ready_seconds,
    )


def timed_executor(
    graph: Graph, weights: dict[str, torch.Tensor], options: argparse.Namespace
) -> tuple[IRExecutor, float]:
    """Return the executor that the command line describes, and the seconds that it takes to make it."""
    return _timed(lambda: make_executor(graph, weights, options))


def peer_runners(
    peers: Mapping[str, Peer],
    graph: Graph,
    weights: dict[str, torch.Tensor],
    call: GraphCall,
    options: argparse.Namespace,
) -> tuple[list[TimedRunner], dict[str, str]]:
    """Return those of the peers that run the graph, on PyTorch's number of threads, and why others do not."""
    runners, refusals = [], {}
    for name, peer in peers.items():
        options.progress.stage(f"converting the graph for {peer.title}")
        try:
            runners.append(_peer_runner(name, peer, PeerGraph(peer, graph, weights, call.args, call.kwargs)))
        except ExecutionError as error:
            refusals[name] = error.message
    return runners, refusals


def _peer_runner(name: str, peer: Peer, graph: PeerGraph) -> TimedRunner:
    call, seconds = _timed(partial(graph.compile, torch.get_num_threads()))
    results = graph.run_flat(call)  # at once: only a call shows whether all kernels exist
    return TimedRunner(name, peer.title, call, lambda: results, seconds)


def _timed(make: Callable[[], _T]) -> tuple[_T, float]:
    """Return what a function makes, and the seconds that this takes, imports and plugins left out."""
    make()
    start = time.perf_counter()
    made = make()
    return made, time.perf_counter() - start
