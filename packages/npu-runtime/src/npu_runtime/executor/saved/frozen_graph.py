"""Frozen graphs: results of the prologue become constants, and the nodes that computed them go."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import torch

from npu_ir import Graph, OpNode, TensorType, Value
from npu_ir.core.node import external_names
from npu_runtime.executor.bound_weights import BoundWeights
from npu_runtime.executor.saved.stored_tensors import is_storable
from npu_runtime.probing.storage import has_stated_strides


@dataclass(frozen=True, slots=True)
class FrozenGraph:
    """A graph whose weights are partly its own.

    Attributes:
        graph: The graph.
        frozen: The names of the weights that are in it only in another form: folded, transformed, packed.
    """

    graph: Graph
    frozen: tuple[str, ...]


def freeze(graph: Graph, bound: BoundWeights, native: Collection[OpNode]) -> FrozenGraph:
    """Return an equal graph with results of the prologue as constants, under the names of their values.

    Results that are not plain tensors are computed again wherever the graph is bound: packed weights of
    oneDNN, numbers.

    Args:
        graph: The graph, which is not changed.
        bound: Its weights.
        native: The nodes that backends other than ATen run: they get tensors in the strides of their types.
    """
    frozen = graph.clone()
    known = {value.name: item for value, item in bound.values.items() if _is_freezable(value, item, native)}
    results = {value.name: value for node in frozen.prologue for value in node.outputs if value.name in known}
    constants = {}
    for name, value in results.items():
        constants[name] = frozen.add_constant(f"frozen.{name}", known[name], type=value.tensor_type)
        frozen.replace_all_uses(value, constants[name])
    read: set[Value] = set()
    for node in reversed(frozen.prologue):
        if any(value.uses for value in node.outputs):
            continue
        read.update(node.inputs)
        frozen.erase(node)
    for name, constant in constants.items():
        frozen.rename(constant, name)
    names = [external_names(value)[0] for value in frozen.weights if value in read]
    for value in frozen.arguments:
        if value in read and not value.use_count and value not in frozen.updates:
            frozen.erase_argument(value)
    return FrozenGraph(frozen, tuple(names))


def _is_freezable(value: Value, item: object, native: Collection[OpNode]) -> bool:
    """Return whether a constant in the strides of its type stands for a result, to the bit."""
    type = value.type
    if value.argument is not None or not isinstance(type, TensorType) or type.symbols:
        return False
    if not isinstance(item, torch.Tensor) or not is_storable(item):
        return False
    if has_stated_strides(item, type):
        return True
    # By the strides of axes of size 1, which address nothing, ATen's kernels choose layouts.
    pairs = zip(type.static_shape, item.stride(), type.static_strides, strict=True)
    is_same_memory = all(actual == stated for size, actual, stated in pairs if size > 1)
    return is_same_memory and all(node in native for node, _ in value.uses)
