"""Sides of a comparison as text on the command line: ``executor:passes=cpu``, ``after:cse,dead-code@1``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from npu_ir import Graph, VerificationError
from npu_ir.cli import factory
from npu_ir.errors import UsageError
from npu_runtime.cli.saved_graph import select_backends, select_passes
from npu_runtime.diagnostics.compare import after_pass, float64
from npu_runtime.diagnostics.compare.sides import select_weights
from npu_runtime.executor.executor import IRExecutor

Weights = Mapping[str, torch.Tensor]


@dataclass(frozen=True, slots=True)
class SideText:
    """One side as named on the command line.

    Attributes:
        text: The whole text.
        kind: The word before the colon.
        rest: The text after the colon.
    """

    text: str
    kind: str
    rest: str

    @property
    def is_eager(self) -> bool:
        return self.kind == "eager"

    def make_model(self, *, train: bool) -> torch.nn.Module:
        """Return the model of an eager side; errors as for `npu_ir.cli.factory.make_model`."""
        return factory.make_model(self.rest, train=train)

    def make(self, graph: Graph, weights: Weights | None) -> Any:
        """Return the side that the text names, as `compare` takes it; an eager side has a model instead.

        Raises:
            UsageError: There is no such backend, pass, or number of runs.
            NpuError: The weights do not fit, or a pass fails.
        """
        return _MAKERS[self.kind](self, graph, select_weights(graph, weights or {}))


def parse_side(text: str) -> SideText:
    """Parse the text of a side.

    Raises:
        UsageError: The text does not name a side.
    """
    kind, colon, rest = text.partition(":")
    needs_rest = kind in ("backend", "after", "eager")
    takes_rest = needs_rest or kind == "executor"
    known = ("interpreter", "executor", "backend", "after", "float64", "eager")
    if kind not in known or bool(colon) > takes_rest or (needs_rest and not rest):
        raise UsageError(
            f"{text!r} is not a side",
            fix=f"see the list of sides in npu compare --help: {', '.join(known)}",
        )
    if kind == "executor" and colon:
        name, _, value = rest.partition("=")
        if name not in _EXECUTORS or not value:
            raise UsageError(
                f"{text!r}: an executor has no such option",
                fix="write executor:passes=NAME, or executor:after=PASS,PASS@2",
            )
    return SideText(text, kind, rest)


def _interpreter(_: SideText, graph: Graph, __: Weights) -> Any:
    return graph


def _float64(_: SideText, graph: Graph, __: Weights) -> Any:
    return float64(graph)


def _executor(side: SideText, graph: Graph, weights: Weights) -> Any:
    name, _, value = side.rest.partition("=")
    return _EXECUTORS[name](side, value, graph, weights) if name else IRExecutor(graph, weights)


def _executor_of_passes(_: SideText, passes: str, graph: Graph, weights: Weights) -> Any:
    return IRExecutor(graph, weights, passes=select_passes(passes))


def _executor_after(side: SideText, text: str, graph: Graph, weights: Weights) -> Any:
    return IRExecutor(_graph_after(side, text, graph), weights, passes=None)


def _backend(side: SideText, graph: Graph, weights: Weights) -> Any:
    return IRExecutor(graph, weights, backend=select_backends([side.rest]))


def _after(side: SideText, graph: Graph, _: Weights) -> Any:
    return _graph_after(side, side.rest, graph)


def _graph_after(side: SideText, text: str, graph: Graph) -> Graph:
    """Return the graph after the first K runs of passes: ``PASS,PASS@K``."""
    head, at, count = text.rpartition("@")
    passes = head if at else text
    if not passes or (at and not count.isdecimal()):
        raise UsageError(
            f"{side.text!r}: {count!r} is not a number of runs"
            if passes
            else f"{side.text!r} names no passes",
            fix="write after:PASS,PASS@2",
        )
    try:
        return after_pass(graph, select_passes(passes) or [], int(count) if at else None)
    except VerificationError as error:
        raise UsageError(error.message, where=side.text, fix=error.fix) from error


_EXECUTORS: Mapping[str, Callable[[SideText, str, Graph, Weights], Any]] = {
    "passes": _executor_of_passes,
    "after": _executor_after,
}
_MAKERS: Mapping[str, Callable[[SideText, Graph, Weights], Any]] = {
    "interpreter": _interpreter,
    "executor": _executor,
    "backend": _backend,
    "after": _after,
    "float64": _float64,
}
