"""Sides of a comparison as text on the command line: ``executor:passes=cpu``, ``after:cse,dead-code@1``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from npu_ir import Graph, VerificationError
from npu_ir.cli import factory
from npu_ir.errors import UsageError
from npu_runtime.cli.saved_graph import executor_passes, select_backends, select_passes
from npu_runtime.diagnostics.compare import after_pass, float64
from npu_runtime.diagnostics.compare.sides import select_weights
from npu_runtime.executor.executor import IRExecutor

Weights = Mapping[str, torch.Tensor]


@dataclass(frozen=True, slots=True)
class SideText:
    """One side as named on the command line: the whole text, and what is before and after its colon."""

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
        known = select_weights(graph, weights or {})
        if self.kind in ("interpreter", "float64"):
            return graph if self.kind == "interpreter" else float64(graph)
        if self.kind == "backend":
            return IRExecutor(graph, known, backend=select_backends([self.rest]), passes="default")
        if self.kind == "after":
            return self._graph_after(graph, self.rest)
        option, _, value = self.rest.partition("=")
        if option == "passes":
            return IRExecutor(graph, known, passes=executor_passes(value))
        if option == "after":
            return IRExecutor(self._graph_after(graph, value), known, passes=None)
        return IRExecutor(graph, known, passes="default")

    def _graph_after(self, graph: Graph, text: str) -> Graph:
        """Return the graph after the first K runs of passes: ``PASS,PASS@K``."""
        head, at, count = text.rpartition("@")
        passes = head if at else text
        if not passes or (at and not count.isdecimal()):
            raise UsageError(
                f"{self.text!r}: {count!r} is not a number of runs"
                if passes
                else f"{self.text!r} names no passes",
                fix="write after:PASS,PASS@2",
            )
        try:
            return after_pass(graph, select_passes(passes) or [], int(count) if at else None)
        except VerificationError as error:
            raise UsageError(error.message, where=self.text, fix=error.fix) from error


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
        if name not in ("passes", "after") or not value:
            raise UsageError(
                f"{text!r}: an executor has no such option",
                fix="write executor:passes=NAME, or executor:after=PASS,PASS@2",
            )
    return SideText(text, kind, rest)
