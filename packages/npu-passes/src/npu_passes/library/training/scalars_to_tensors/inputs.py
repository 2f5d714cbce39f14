"""Conversion of number inputs of a graph to 0-d tensor inputs."""

from __future__ import annotations

import torch

from npu_ir import Graph, ScalarType, TensorType, Value
from npu_passes.library.training.scalars_to_tensors.selection import is_only_converted


def tensor_inputs(graph: Graph) -> Graph:
    """Return a copy of a graph that takes 0-d tensors for the floats that it only converts to tensors.

    The names and positions of these inputs stay, and so do floats that a node needs as numbers.

    Args:
        graph: A graph after the pass ``scalars-to-tensors``.
    """
    copy = graph.clone()
    for value in copy.inputs:
        if not isinstance(value.type, ScalarType) or not is_only_converted(value):
            continue
        types = {node.outputs[0].tensor_type for node in value.users}
        if len(types) == 1:
            _replace(copy, value, types.pop())
    return copy


def _replace(graph: Graph, number: Value, type: TensorType) -> None:
    """Replace a number input by a tensor input."""
    # A temporary constant, because an input can be replaced only when the number has no readers.
    constant = graph.add_constant(f"tensor of {number.name}", torch.zeros((), dtype=type.dtype))
    for node in number.users:
        graph.replace_all_uses(node.outputs[0], constant)
        graph.erase(node)
    graph.replace_all_uses(constant, graph.replace_input(number, type))
    graph.erase_argument(constant)
