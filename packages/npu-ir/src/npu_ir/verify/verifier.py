"""Comparison of a graph with its model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from npu_ir.core.node import InputKind, OpNode, Value, external_names
from npu_ir.core.structure import flatten_like
from npu_ir.errors import ExecutionError, VerificationError, WeightError
from npu_ir.graph.graph import Graph
from npu_ir.graph.requirement import keyword_dict, positional_tuple, require_graph, require_weights
from npu_ir.interpreter.interpreter import Interpreter
from npu_ir.interpreter.runners import find_runner
from npu_ir.ops.execution import location_of
from npu_ir.plugins.plugin_manager import INTERPRETER
from npu_ir.verify.comparison import Comparison, compare
from npu_ir.verify.reference import clone_tensors, model_tensors, node_values, run_eagerly

_MOST_NAMES = 5


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first node whose value differs from PyTorch's.

    Attributes:
        node: Name of the node.
        place: Its name, module path and source line.
        comparison: The difference.
        compared: Number of values that agree before it.
    """

    node: str
    place: str
    comparison: Comparison
    compared: int

    def __str__(self) -> str:
        agreed = f"({self.compared} values before it agree)"
        return f"first diverging node: {self.place}\n  {self.comparison} {agreed}"


@dataclass(frozen=True, slots=True)
class VerificationReport:
    """Result of the comparison of a graph with its model.

    Attributes:
        outputs: One comparison per leaf of the result.
        mutations: One per buffer, parameter or input that the model or the graph mutates.
        first_divergence: On a mismatch, the first node that differs; None if all comparable nodes agree.
        on: The runner of the graph; the interpreter searches for the node.
    """

    outputs: tuple[Comparison, ...]
    mutations: tuple[Comparison, ...]
    first_divergence: Divergence | None = None
    on: str = INTERPRETER

    @property
    def ok(self) -> bool:
        return all(item.ok for item in (*self.outputs, *self.mutations))

    @property
    def max_abs(self) -> float:
        """Largest absolute difference of any result or mutation."""
        return max((item.max_abs for item in (*self.outputs, *self.mutations)), default=0.0)

    def __str__(self) -> str:
        if self.ok:
            compared = f"{_count_text(self.outputs, 'result')} and {_count_text(self.mutations, 'mutation')}"
            return f"graph and model agree: {compared}, max difference {self.max_abs:.3g}"
        differ = [_mismatch_text(self.outputs, "result"), _mismatch_text(self.mutations, "mutation")]
        wrong = [str(item) for item in (*self.outputs, *self.mutations) if not item.ok]
        agreed = "every node that could be compared agrees with the exported program"
        if self.on != INTERPRETER:
            agreed += f" when the interpreter runs it, not the {self.on}"
        head = f"graph and model differ: {' and '.join(filter(None, differ))}"
        return "\n".join([head, *wrong, str(self.first_divergence or agreed)])


def _mismatch_text(items: Sequence[Comparison], what: str) -> str:
    return f"{sum(not item.ok for item in items)} of {_count_text(items, what)}" if items else ""


def _count_text(items: Sequence[Comparison], what: str) -> str:
    return f"{len(items)} {what}" if len(items) == 1 else f"{len(items)} {what}s"


def verify_ir(
    graph: Graph,
    model: torch.nn.Module,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    weights: Mapping[str, torch.Tensor] | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    on: str = INTERPRETER,
) -> VerificationReport:
    """Compare the results and in-place changes of ``graph`` and ``model``.

    Model, arguments and random state are left unchanged. Both start from the same random state.

    Args:
        graph: The graph of the model.
        model: The model, in the mode it was captured in.
        args: Arguments for both.
        kwargs: Keyword arguments for both.
        weights: Parameters and buffers for both; the model's own if not given.
        rtol: Relative tolerance; by default that of each dtype (`npu_ir.verify.compare`).
        atol: Absolute tolerance, likewise.
        on: Runner of the graph: the interpreter, or the name of a plugin's runner.

    Raises:
        UsageError: There is no such runner.
        VerificationError: The model itself fails on these arguments.
        ExecutionError: The graph fails on these arguments.
        WeightError: The weights do not fit the graph.
    """
    require_graph(graph)
    if not isinstance(model, torch.nn.Module):
        raise VerificationError(
            f"expected the model of the graph, a torch.nn.Module, got {type(model).__name__}",
            fix="verify_ir(graph, model, args)",
        )
    require_weights(weights)
    args, kwargs = positional_tuple(args), keyword_dict(kwargs)
    run = _Verification(graph, model, _add_tied_names(graph, weights or {}), args, kwargs, on)
    random_state = torch.get_rng_state()
    try:
        outputs, mutations = run.compare(rtol, atol)
        report = VerificationReport(tuple(outputs), tuple(mutations), on=on)
        if report.ok:
            return report
        torch.set_rng_state(random_state)
        return VerificationReport(report.outputs, report.mutations, run.first_divergence(rtol, atol), on)
    finally:
        torch.set_rng_state(random_state)


def _require_weights_of(graph: Graph, tensors: Mapping[str, torch.Tensor]) -> None:
    """Raise if a model, with the weights that are given for it, lacks a parameter or buffer of the graph."""
    absent = [
        value.argument.target
        for value in graph.arguments
        if value.argument is not None
        and value.argument.kind in (InputKind.PARAMETER, InputKind.BUFFER)
        and value.argument.data is None
        and tensors.keys().isdisjoint(external_names(value))
    ]
    if absent:
        known = {name for value in graph.arguments for name in external_names(value)}
        others = [name for name in tensors if name not in known]
        raise WeightError(
            f"the graph was captured from another model: it has weights {_first_names(absent)}; "
            f"the model has {_first_names(others) or 'none of these'}",
            where=f"graph {graph.name!r}",
            fix="give the model of the graph, or extract_ir(model, args) again",
        )


def _first_names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + more


def _add_tied_names(graph: Graph, weights: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return ``weights`` by all names that they have in the graph."""
    complete = dict(weights)
    for value in graph.arguments:
        names = external_names(value)
        tensor = next((weights[name] for name in names if name in weights), None)
        if tensor is not None:
            complete |= {name: tensor for name in names if name not in weights}
    return complete


class _Verification:
    """One comparison of a graph and a model on the same arguments; ``weights`` go by all their names."""

    def __init__(
        self,
        graph: Graph,
        model: torch.nn.Module,
        weights: dict[str, torch.Tensor],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        on: str,
    ) -> None:
        self._graph = graph
        self._model = model
        self._tensors = {**model_tensors(model), **weights}
        self._args = args
        self._kwargs = kwargs
        bound = [value for value in graph.arguments if value not in graph.constants.values()]
        # Weights from the caller are passed on even if the graph does not have them: the runner reports them.
        _require_weights_of(graph, self._tensors)
        needed = {*weights, *(key for value in bound for key in external_names(value))}
        self._weights = {key: item.detach() for key, item in self._tensors.items() if key in needed}
        self._runner = find_runner(on)(graph, self._weights, None)

    def compare(self, rtol: float | None, atol: float | None) -> tuple[list[Comparison], list[Comparison]]:
        random_state = torch.get_rng_state()
        args, kwargs = clone_tensors((self._args, self._kwargs))
        try:
            expected, state = run_eagerly(self._model, self._tensors, args, kwargs)
        except Exception as error:
            problem = f"the model fails on these arguments: {type(error).__name__}: {error}"
            raise VerificationError(problem) from error
        torch.set_rng_state(random_state)
        actual, changes = self._runner.run_flat(*clone_tensors((self._args, self._kwargs)))
        outputs = list(self._compare_results(actual, expected, rtol, atol))
        return outputs, list(self._compare_changes(changes, state, args, kwargs, rtol, atol))

    def _compare_results(
        self, actual: list[Any], expected: Any, rtol: float | None, atol: float | None
    ) -> Iterator[Comparison]:
        structure = self._graph.results[0]
        try:
            leaves = flatten_like(expected, structure, "result")
        except ExecutionError as error:
            yield Comparison("result", f"the structure differs: {error.message}", float("nan"), float("nan"))
            return
        for path, got, want in zip(structure.leaf_paths("result"), actual, leaves, strict=True):
            yield compare(path, got, want, rtol, atol)

    def _compare_changes(
        self,
        changes: dict[str, torch.Tensor],
        state: dict[str, torch.Tensor],
        args: Any,
        kwargs: Any,
        rtol: float | None,
        atol: float | None,
    ) -> Iterator[Comparison]:
        """Compare in-place changes: those that the graph reports, the model makes, or both."""
        after = {**state, **self._inputs_by_name(args, kwargs)}
        before = {**self._tensors, **self._inputs_by_name(self._args, self._kwargs)}
        for name, tensor in after.items():
            changed = compare(name, tensor, before[name], 0.0, 0.0)
            if name in changes or not changed.ok:
                yield compare(name, changes.get(name, before[name]), tensor, rtol, atol)

    def _inputs_by_name(self, args: Any, kwargs: Any) -> dict[str, Any]:
        structure, leaves = self._graph.call
        items = flatten_like((args, kwargs), structure, "call")
        return {
            leaf.target: item for leaf, item in zip(leaves, items, strict=True) if isinstance(leaf, Value)
        }

    def first_divergence(self, rtol: float | None, atol: float | None) -> Divergence | None:
        """Return the first node whose value differs from PyTorch's for that node, if any."""
        random_state = torch.get_rng_state()
        expected = node_values(self._model, self._tensors, self._args, self._kwargs)
        torch.set_rng_state(random_state)
        divergences: list[Divergence] = []
        agreed = 0

        def observe(node: OpNode, outputs: list[Any]) -> None:
            nonlocal agreed
            for value, tensor in zip(node.outputs, outputs, strict=True):
                if divergences or value.name not in expected:
                    continue
                comparison = compare(f"%{value.name}", tensor, expected[value.name], rtol, atol)
                if comparison.ok:
                    agreed += 1
                else:
                    divergences.append(Divergence(node.name, location_of(node), comparison, agreed))

        interpreter = Interpreter(self._graph, self._weights, observe=observe)
        interpreter.run_flat(*clone_tensors((self._args, self._kwargs)), observe=observe)
        return divergences[0] if divergences else None
