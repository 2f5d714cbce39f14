"""Checked mode: comparison of the results and the recorded origins of a graph before and after a pass."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch

from npu_ir import Graph, Interpreter, NpuError, OpNode, Value, load_weights
from npu_ir.core.literals import same_literal
from npu_ir.core.tensor_bytes import equal_elements, largest_magnitude, same_data
from npu_ir.interpreter.random_data import random_call, random_weights
from npu_ir.interpreter.run_nodes import Observer
from npu_ir.ops.effects import find_uninitialized_values
from npu_ir.ops.execution import describe
from npu_passes.core.base import Numerics
from npu_passes.errors import PassError

# For each call, by path: the results of the graph, and the new contents of mutated buffers and inputs.
Results: TypeAlias = "list[dict[str, Any]]"


@dataclass(frozen=True)
class Checked:
    """Data that graphs run on in checked mode.

    Attributes:
        weights: By ``state_dict`` key, or the path of a weight file; random by default.
        calls: Pairs of positional and keyword arguments; by default one call on random data.
        sizes: Values of symbols, for random data.
        seed: Seed of the random data, and of ops that draw random numbers.

    Raises:
        PassError: The weights or calls are of another type.
    """

    weights: Mapping[str, torch.Tensor] | str | os.PathLike[str] | None = None
    calls: Sequence[tuple[Sequence[Any], Mapping[str, Any]]] = ()
    sizes: Mapping[str, int] = field(default_factory=dict)
    seed: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.weights, (Mapping, str, os.PathLike, type(None))):
            raise PassError(
                f"weights are a mapping or the path of a file, not {describe(self.weights)}",
                fix="Checked(weights=model.state_dict())",
            )
        is_listed = isinstance(self.calls, Iterable) and not isinstance(self.calls, torch.Tensor)
        calls = tuple(self.calls) if is_listed else (self.calls,)
        for call in calls:
            if not _is_call(call):
                raise PassError(
                    f"a call is a pair of positional and keyword arguments, not {describe(call)}",
                    fix="Checked(calls=[((x, y), {})])",
                )
        object.__setattr__(self, "calls", calls)


def _is_call(item: object) -> bool:
    return (
        isinstance(item, (tuple, list))
        and len(item) == 2
        and isinstance(item[0], (tuple, list))
        and isinstance(item[1], Mapping)
    )


class Trial:
    """Repeated runs of successive states of one graph on the same weights and inputs.

    ``observe`` is called after each node.

    Raises:
        PassError: The graph cannot be run on the data.
    """

    def __init__(self, graph: Graph, data: Checked, observe: Observer | None = None) -> None:
        self.seed = data.seed
        try:
            self.weights = _load_weights(graph, data)
            self.calls = list(data.calls) or [random_call(graph, seed=data.seed, sizes=data.sizes)]
            self.first = self.results(graph, observe)
        except NpuError as error:
            raise PassError(
                f"the graph cannot be checked, for it fails before any pass: {error.message}",
                where=error.where,
                fix="give weights and inputs that it can be run on: Checked(weights=...,"
                " calls=[(args, kwargs)]), or --weights and --input of npu opt",
            ) from error

    def results(self, graph: Graph, observe: Observer | None = None) -> Results:
        """Return the results and the mutated state of ``graph``.

        ``observe`` is called after each node, with the node and its outputs; not inside regions.

        Raises:
            NpuError: It cannot be run.
        """
        interpreter = Interpreter(graph, self.weights, observe=observe)
        paths = list(graph.results[0].leaf_paths("result"))
        results = []
        for args, kwargs in self.calls:
            torch.manual_seed(self.seed)
            leaves, mutations = interpreter.run_flat(args, kwargs, observe=observe)
            updates = {f"the update of {name}": value for name, value in mutations.items()}
            results.append({**dict(zip(paths, leaves, strict=True)), **updates})
        return results


def _load_weights(graph: Graph, data: Checked) -> Mapping[str, torch.Tensor]:
    if data.weights is None:
        return random_weights(graph, data.seed)
    return data.weights if isinstance(data.weights, Mapping) else load_weights(data.weights, graph)


def find_first_difference(actual: Results, expected: Results, numerics: Numerics) -> str | None:
    """Return the first difference beyond ``numerics``, where and by how much; None if there is none."""
    return next(find_differences(actual, expected, numerics), None)


def find_differences(actual: Results, expected: Results, numerics: Numerics) -> Iterator[str]:
    """Yield each difference between results beyond ``numerics``: where, and by how much."""
    for now, before in zip(actual, expected, strict=True):
        if now.keys() != before.keys():
            yield f"the results are {', '.join(now)}, and were {', '.join(before)}"
            continue
        for name, value in now.items():
            problem = describe_difference(value, before[name], numerics)
            if problem is not None:
                yield f"{name} {problem}"


def describe_difference(actual: Any, expected: Any, numerics: Numerics) -> str | None:
    """Return a description of a value's difference beyond ``numerics``; None if there is none."""
    if not (isinstance(actual, torch.Tensor) and isinstance(expected, torch.Tensor)):
        same = type(actual) is type(expected) and same_literal(actual, expected)
        return None if same else f"is {describe(actual)}, and was {describe(expected)}"
    if (actual.dtype, actual.shape, actual.layout) != (expected.dtype, expected.shape, expected.layout):
        return f"is {describe(actual)}, and was {describe(expected)}"
    if actual.layout is not torch.strided:
        actual, expected = actual.to_dense(), expected.to_dense()
    if expected.is_quantized:
        actual, expected = actual.dequantize(), expected.dequantize()
    if same_data(actual, expected) or actual.numel() == 0:
        return None
    if not (expected.is_floating_point() or expected.is_complex()):
        return f"differs in {int((actual != expected).sum())} of {actual.numel()} elements"
    error, allowed = relative_error(actual, expected), numerics.allowed_difference(expected.dtype)
    if error <= allowed:
        return None
    magnitude = largest_magnitude(split_float64(expected))
    return f"differs by {error:.3g} of its largest magnitude, {magnitude:.3g}; {allowed:.3g} is allowed"


def relative_error(actual: torch.Tensor, expected: torch.Tensor) -> float:
    """Return the largest difference between two tensors, relative to the largest finite expected magnitude.

    NaN equals NaN and 0.0 equals -0.0; infinities must be the same. The difference is absolute if all
    expected elements are 0.
    """
    # Relative to the whole tensor, not to each element: a small sum of large terms carries their rounding.
    error = absolute_error(actual, expected)
    return error / (largest_magnitude(split_float64(expected)) or 1.0) if error else 0.0


def absolute_error(actual: torch.Tensor, expected: torch.Tensor) -> float:
    """Return the largest difference between two tensors; infinity if NaN or infinities do not agree."""
    got, want = split_float64(actual), split_float64(expected)
    same = equal_elements(got, want)
    if bool(same.all()):
        return 0.0
    if not bool((same | (got.isfinite() & want.isfinite())).all()):
        return float("inf")
    return float(torch.where(same, 0.0, (got - want).abs()).max())


def split_float64(tensor: torch.Tensor) -> torch.Tensor:
    """Return the elements of a tensor in float64, with real and imaginary parts separated."""
    plain = tensor.detach().resolve_conj()
    return torch.view_as_real(plain.to(torch.complex128)) if plain.is_complex() else plain.to(torch.float64)


class ObservedRun:
    """Values that nodes computed in the last run of a graph, except those with undefined contents.

    The graph must not be edited while this exists.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._items: dict[Value, Any] = {}
        self._passed_over = find_uninitialized_values(graph)

    def observe(self, node: OpNode, outputs: list[Any]) -> None:
        """Store the outputs of a node; an observer for `npu_passes.manager.checked_mode.Trial`."""
        for value, item in zip(node.outputs, outputs, strict=True):
            if value.use_count and value not in self._passed_over:
                self._items[value] = item

    def values(self) -> Iterator[tuple[Value, Any]]:
        """Yield values with their contents, in the order of the graph."""
        values = (value for node in self._graph.nodes for value in node.outputs)
        return ((value, self._items[value]) for value in values if value in self._items)

    def magnitude(self, value: Value) -> float:
        """Return the largest magnitude of a value and of the results of nodes that it depends on."""
        reached: dict[Value, None] = {}
        pending = [value]
        while pending:
            value = pending.pop()
            if value not in reached and value.producer is not None:
                reached[value] = None
                pending += value.producer.inputs
        items = [self._items[value] for value in reached if value in self._items]
        return max(
            (largest_magnitude(split_float64(item)) for item in items if _is_float(item) and item.numel()),
            default=0.0,
        )


def find_wrong_origin(before: ObservedRun, after: ObservedRun, numerics: Numerics) -> str | None:
    """Return a description of the first value that differs from its recorded origin; None if there is none.

    After catastrophic cancellation, the tolerance is relative to the values that a value was computed from.
    """
    expected = {origin: item for item in before.values() for origin in item[0].origins}
    for value, item in after.values():
        for origin in value.origins:
            if origin not in expected:
                continue
            original, wanted = expected[origin]
            problem = describe_difference(item, wanted, numerics)
            if problem is None or _is_within_cancellation(item, wanted, numerics, before.magnitude(original)):
                continue
            return f"%{value.name} stands for %{original.name}, and {problem}"
    return None


def _is_within_cancellation(item: Any, wanted: Any, numerics: Numerics, magnitude: float) -> bool:
    """Return whether two tensors differ by no more than is allowed relative to ``magnitude``."""
    if (
        not (_is_float(item) and _is_float(wanted))
        or item.shape != wanted.shape
        or item.dtype != wanted.dtype
    ):
        return False
    return absolute_error(item, wanted) <= numerics.allowed_difference(wanted.dtype) * magnitude


def _is_float(item: Any) -> bool:
    return isinstance(item, torch.Tensor) and item.is_floating_point() and item.layout is torch.strided
