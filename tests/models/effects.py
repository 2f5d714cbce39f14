"""Results and writes of a model, in eager PyTorch and as a graph, and their differences."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map

from npu_ir import Graph, Value
from npu_ir.core.structure import unflatten
from npu_ir.verify.comparison import Comparison, compare
from tests.models.case import Case
from tests.support.comparison import first_difference


def real_model(case: Case) -> torch.nn.Module:
    """Return the model in eval mode, with random weights.

    A fresh model has biases of 0 and scales of 1 or 1e-6: whether they are read would not show. The
    weights need no gradients, as in a graph that is run: torch.matmul folds its operands by that too.
    """
    torch.manual_seed(0)
    model = case.build().eval().requires_grad_(False)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.is_floating_point():
                parameter.add_(torch.randn_like(parameter), alpha=0.05)
        for name, buffer in model.named_buffers():
            if name.endswith("running_mean"):
                buffer.normal_(0.0, 0.1)
            if name.endswith("running_var"):
                buffer.uniform_(0.5, 1.5)
    return model


@dataclass(frozen=True, slots=True)
class Effect:
    """What a call gives: its results, and its arguments and the buffers as it leaves them."""

    results: Any
    kwargs: dict[str, Any]
    buffers: dict[str, torch.Tensor]

    @property
    def parts(self) -> tuple[Any, ...]:
        return self.results, self.kwargs, self.buffers


def run_eagerly(model: torch.nn.Module, kwargs: dict[str, Any]) -> Effect:
    """Return what ``model`` does; the buffers that it computes with are copies."""
    kwargs = tree_map(torch.clone, kwargs)
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    with torch.no_grad():
        results = torch.func.functional_call(model, buffers, (), kwargs)
    return Effect(results, kwargs, buffers)


def run_graph(
    graph: Graph, model: torch.nn.Module, kwargs: dict[str, Any], execute: Callable[..., Any]
) -> Effect:
    weights = model.state_dict()
    buffers = dict(model.named_buffers())
    targets = {value.argument.target for value in graph.arguments if value.argument}
    constants = {name: buffers[name] for name in buffers.keys() & targets if name not in weights}
    given = tree_map(torch.clone, kwargs)
    results, mutations = execute(
        graph, kwargs=given, weights=weights, constants=constants, return_mutations=True
    )
    changed = first_difference(kwargs, given)
    if changed:
        raise AssertionError(f"the caller's arguments changed: {changed}")
    structure, leaves = graph.call
    names = [leaf.argument.target if isinstance(leaf, Value) else None for leaf in leaves]
    _, after = unflatten(structure, [mutations.get(name) for name in names])
    return Effect(
        results,
        {name: _updated(value, after[name]) for name, value in kwargs.items()},
        {name: mutations.get(name, buffer) for name, buffer in buffers.items()},
    )


def _updated(before: Any, after: Any) -> Any:
    if isinstance(before, list):
        return [_updated(*pair) for pair in zip(before, after, strict=True)]
    return before if after is None else after


def compare_trees(actual: Any, expected: Any) -> list[Comparison]:
    """Return one comparison for each tensor, number and text of two results of one structure."""
    actual_leaves, actual_spec = tree_flatten(actual)
    leaves, spec = tree_flatten(expected)
    if actual_spec != spec:
        return [Comparison("results", f"structure: expected {spec}, got {actual_spec}")]
    pairs = zip(actual_leaves, leaves, strict=True)
    return [compare(f"result {position}", *pair) for position, pair in enumerate(pairs)]


def says_something(results: Any) -> bool:
    """Return whether the floating-point results are finite, and not all one number."""
    tensors = [
        leaf for leaf in tree_leaves(results) if isinstance(leaf, torch.Tensor) and leaf.is_floating_point()
    ]
    return all(bool(tensor.isfinite().all()) for tensor in tensors) and any(
        bool((tensor != tensor.flatten()[0]).any()) for tensor in tensors
    )
