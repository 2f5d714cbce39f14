"""Baking: evaluation of a graph's prologue ahead of time, for weights that will not change."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import torch

from npu_ir import Graph, InputKind, TensorType, Value, load_weights
from npu_ir.core.naming import unique_name
from npu_ir.core.node import external_names
from npu_ir.core.storage import storage_address
from npu_ir.graph.binding import bind_weights, flatten_wrappers
from npu_ir.graph.specialize import replace_by_literal
from npu_ir.interpreter.prologue import Prologue
from npu_passes.prologue.result_copies import copy_returned_parameters

_CPU = torch.device("cpu")


class FoldedNames:
    """Generator of names ``folded.NAME`` that no weight, constant or input of a graph has.

    The graph gets no other new weights or constants while this is in use.
    """

    def __init__(self, graph: Graph) -> None:
        self._taken = {name: None for value in graph.arguments for name in external_names(value)}
        self._counters: dict[str, int] = {}

    def take(self, name: str) -> str:
        """Reserve and return the name of the parameter that replaces the value ``name``."""
        folded = unique_name(self._taken, self._counters, f"folded.{name.removeprefix('folded.')}")
        self._taken[folded] = None
        return folded


def bake(
    graph: Graph, weights: Mapping[str, torch.Tensor] | str | os.PathLike[str] | None = None
) -> tuple[Graph, dict[str, torch.Tensor]]:
    """Return an equivalent graph without prologue, for ``graph`` with fixed ``weights``, and its weights.

    Results of the prologue become parameters called ``folded.NAME``. Weights and constants that nothing
    reads afterwards are dropped. Tensors are not copied: weights that the prologue leaves alone are the
    caller's own, and share memory with the views that it makes of them. Any other parameter that the
    graph returns is copied in each call, because callers may write into results; results that are views
    of one tensor remain so.

    Args:
        graph: Any graph; it is not changed.
        weights: By ``state_dict`` key, non-persistent buffers included; or the path of a weight file.

    Raises:
        GraphError: The graph breaks a rule of the IR.
        WeightError: Weights are missing, unexpected, or of the wrong shape or dtype.
        ExecutionError: A node of the prologue fails.
    """
    graph.check()
    if isinstance(weights, (str, os.PathLike)):
        weights = load_weights(weights, graph)
    supplied = flatten_wrappers(weights or {})
    bound = bind_weights(graph, supplied)
    device = next((tensor.device for tensor in bound.values()), _CPU)
    computed = Prologue(graph, bound, device).values_on(device)

    baked = graph.clone()
    # Storages that the caller owns: a model may return its own weights, so results in them are not copied.
    outside = {storage_address(tensor) for value, tensor in bound.items() if _is_from_caller(value, supplied)}
    tensors = _replace_prologue(baked, {value.name: item for value, item in computed.items()}, outside)
    for value in baked.arguments:
        if value.kind is not InputKind.INPUT and not value.use_count and value not in baked.updates:
            baked.erase_argument(value)
    left = {value.name for value in baked.arguments if value.kind is not InputKind.INPUT}
    for value, tensor in bound.items():
        if value.name in left and _is_from_caller(value, supplied):
            tensors[external_names(value)[0]] = tensor
    return baked, tensors


def _replace_prologue(
    graph: Graph, computed: Mapping[str, Any], outside: set[int | None]
) -> dict[str, torch.Tensor]:
    """Replace results of the prologue by parameters or numbers; return the tensors of the parameters."""
    names = FoldedNames(graph)
    contents: dict[Value, torch.Tensor] = {}

    def add(name: str, tensor: torch.Tensor, type: TensorType | None = None) -> Value:
        parameter = graph.add_parameter(names.take(name), type or TensorType.of(tensor))
        contents[parameter] = tensor
        return parameter

    nodes = graph.prologue
    for value in [value for node in nodes for value in node.outputs if value.name in computed]:
        content = computed[value.name]
        if isinstance(content, torch.Tensor):
            graph.replace_all_uses(value, add(value.name, content, value.tensor_type))
        else:
            replace_by_literal(graph, value, content)
    for node in reversed(nodes):  # readers before what they read: only unread nodes can be erased
        graph.erase(node)
    own = {
        value: tensor for value, tensor in contents.items() if storage_address(tensor) not in outside - {None}
    }
    copy_returned_parameters(graph, own, add)
    for parameter in list(contents):
        if not parameter.use_count:
            graph.erase_argument(parameter)
            del contents[parameter]
    tensors = {external_names(parameter)[0]: tensor for parameter, tensor in contents.items()}
    for target in tensors:
        graph.rename(graph.parameters[target], target)
    return tensors


def _is_from_caller(value: Value, given: Mapping[str, torch.Tensor]) -> bool:
    """Return whether the data of a weight comes from the caller, not from the graph."""
    return value.data is None or any(name in given for name in external_names(value))
