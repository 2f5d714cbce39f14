"""Conversion of arguments to sides of a comparison, and checks that they can be compared."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

import torch

from npu_ir import ExecutionError, Graph, InputKind, VerificationError, load_weights
from npu_ir.core.node import external_names
from npu_ir.verify.reference import model_tensors
from npu_passes import Journal, PassManager
from npu_passes.manager.rounds import Rounds
from npu_runtime.diagnostics.compare.sides import (
    ExecutorSide,
    Float64,
    Float64Side,
    GraphSide,
    ModuleSide,
    Side,
    Weights,
    select_weights,
)
from npu_runtime.executor.executor import IRExecutor

_SIDES = "an nn.Module, a Graph, an IRExecutor, after_pass(graph, passes, k) or float64(graph)"


def after_pass(graph: Graph, passes: Any, k: int | None = None) -> Graph:
    """Return the graph after the first ``k`` runs of passes.

    The interpreter runs it in a comparison; ``IRExecutor(after_pass(...), passes=None)`` executes it.

    Args:
        graph: The graph, which is not changed.
        passes: As `npu_passes.PassManager` takes them.
        k: The number of runs, in the order of ``PassManager(passes).run(graph).passes``; None for all.

    Raises:
        PassError: As for `npu_passes.PassManager`.
        VerificationError: There are fewer runs.
    """
    manager = PassManager(passes)
    rounds = Rounds(graph.clone(), manager.passes, manager.max_rounds, Journal())
    done = [str(step.item) for step in islice(rounds.run_passes(), k if k is None or k >= 0 else 0)]
    if k is not None and k != len(done):
        raise VerificationError(
            f"there is no state after {k} runs of passes: there are {len(done)} runs",
            where=f"graph {graph.name!r}",
            fix=f"in order: {', '.join(done) or 'none'}",
        )
    rounds.graph.check()
    return rounds.graph.clone(f"{graph.name} after {done[-1]}, run {len(done)}" if done else graph.name)


def make_sides(
    a: Any,
    b: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    weights: Weights | str | os.PathLike[str] | None,
) -> tuple[Side, Side]:
    """Return the two sides of a comparison.

    Raises:
        VerificationError: One of them cannot be a side.
        WeightError: The weights cannot be read.
    """
    for name, side in (("a", a), ("b", b)):
        if not isinstance(side, (torch.nn.Module, Graph, IRExecutor, Float64)):
            raise VerificationError(
                f"side {name} is {type(side).__name__}, which cannot be compared", fix=f"give {_SIDES}"
            )
    loaded = load_weights(weights) if isinstance(weights, (str, os.PathLike)) else weights
    own = {"a": _own_weights(a), "b": _own_weights(b)}
    own["a"], own["b"] = own["a"] or own["b"], own["b"] or own["a"]
    sides = [_make_side(side, args, kwargs, loaded, own[name], (a, b)) for name, side in (("a", a), ("b", b))]
    return sides[0], sides[1]


def _own_weights(side: Any) -> Weights:
    if isinstance(side, torch.nn.Module):
        return model_tensors(side)
    if not isinstance(side, IRExecutor):
        return {}
    weights = side.weights().items()
    return {
        name: item
        for value, item in weights
        if value.argument is not None and value.argument.kind is not InputKind.CONSTANT
        for name in external_names(value)
    }


def _make_side(
    side: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    weights: Weights | None,
    own: Weights,
    both: tuple[Any, Any],
) -> Side:
    if isinstance(side, IRExecutor):
        with contextlib.suppress(ExecutionError):  # which the comparison of the arguments explains
            side = side.for_call(args, kwargs)
        return ExecutorSide(side)
    if isinstance(side, torch.nn.Module):
        return ModuleSide(side, args, kwargs, weights or {})
    graph = side.graph if isinstance(side, Float64) else side
    # Weights that neither graph has are passed on, so that binding raises an error about them.
    chosen = (
        select_weights(graph, own)
        if weights is None
        else {**_unknown_weights(weights, both), **select_weights(graph, weights)}
    )
    return Float64Side(graph, chosen) if isinstance(side, Float64) else GraphSide(graph, chosen)


def _unknown_weights(weights: Weights, both: tuple[Any, Any]) -> dict[str, torch.Tensor]:
    graphs = [side if isinstance(side, Graph) else getattr(side, "graph", None) for side in both]
    if not all(isinstance(graph, Graph) for graph in graphs):
        return {}
    known = {name for graph in graphs for name in select_weights(graph, weights)}  # type: ignore[arg-type]
    return {name: tensor for name, tensor in weights.items() if name not in known}


def require_comparable(a: Side, b: Side, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raise before the runs if the sides do not take these inputs, or have different numbers of results.

    Raises:
        VerificationError: Names the difference.
    """
    for side in (a, b):
        side.bind_arguments(args, kwargs)
    mine, others = (list(side.graph.results[0].leaf_paths("result")) for side in (a, b))
    if len(mine) != len(others):
        raise VerificationError(
            f"{a.label} gives {', '.join(mine) or 'nothing'}, {b.label} {', '.join(others) or 'nothing'}",
            where="the results, which are compared one by one",
            fix="compare sides that come from the same model",
        )
