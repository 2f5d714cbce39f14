"""Sides of a comparison as text: ``executor:passes=cpu``, ``after:cse,dead-code@1``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from npu_ir import Graph
from npu_ir.cli import factory
from npu_ir.errors import UsageError
from npu_passes.registry import all_pipelines, passes_of
from npu_runtime.comparing.float64_side import float64
from npu_runtime.comparing.making import after_pass
from npu_runtime.comparing.sides import known_to
from npu_runtime.executor import IRExecutor

Weights = Mapping[str, torch.Tensor]


@dataclass(frozen=True, slots=True)
class SideText:
    """One side as the command line names it.

    Attributes:
        text: All of it.
        kind: The word in front.
        rest: What follows the colon.
    """

    text: str
    kind: str
    rest: str

    @property
    def is_eager(self) -> bool:
        return self.kind == "eager"

    def make_model(self, *, train: bool) -> torch.nn.Module:
        """Return the model that an eager side names; errors as for `npu_ir.cli.factory.make_model`."""
        return factory.make_model(self.rest, train=train)

    def make(self, graph: Graph, weights: Weights | None) -> Any:
        """Return the side that this text stands for, as `compare` takes it; an eager side is no matter of graphs."""
        return _MAKERS[self.kind](self, graph, known_to(graph, weights or {}))


def parse_side(text: str) -> SideText:
    """Return what a text says of a side.

    Raises:
        UsageError: It says nothing that is known.
    """
    kind, colon, rest = text.partition(":")
    needs_rest = kind in ("backend", "after", "eager")
    takes_rest = needs_rest or kind == "executor"
    known = ("interpreter", "executor", "backend", "after", "float64", "eager")
    if kind not in known or bool(colon) > takes_rest or (needs_rest and not rest):
        raise UsageError(
            f"{text!r} is no side", fix=f"see the list of sides in npu compare --help: {', '.join(known)}"
        )
    if kind == "executor" and colon and not rest.startswith("passes="):
        raise UsageError(f"{text!r}: an executor has no such option", fix="write executor:passes=NAME")
    return SideText(text, kind, rest)


def _interpreter(_: SideText, graph: Graph, __: Weights) -> Any:
    return graph


def _float64(_: SideText, graph: Graph, __: Weights) -> Any:
    return float64(graph)


def _executor(side: SideText, graph: Graph, weights: Weights) -> Any:
    passes = side.rest.removeprefix("passes=")
    if not passes:
        return IRExecutor(graph, weights)
    return IRExecutor(graph, weights, passes=None if passes == "none" else passes)


def _backend(side: SideText, graph: Graph, weights: Weights) -> Any:
    return IRExecutor(graph, weights, backend=side.rest)


def _after(side: SideText, graph: Graph, _: Weights) -> Any:
    text, at, count = side.rest.rpartition("@")
    if at and not count.isdecimal():
        raise UsageError(f"{side.text!r}: {count!r} is no number of runs", fix="write after:PASS,PASS@2")
    passes = text if at else side.rest
    chosen = passes_of(passes) if passes in all_pipelines() else passes
    return after_pass(graph, chosen, int(count) if at else None)


_MAKERS: Mapping[str, Callable[[SideText, Graph, Weights], Any]] = {
    "interpreter": _interpreter,
    "executor": _executor,
    "backend": _backend,
    "after": _after,
    "float64": _float64,
}
