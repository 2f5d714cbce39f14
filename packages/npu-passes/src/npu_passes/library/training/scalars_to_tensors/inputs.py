"""Calling a graph with 0-d tensors where it takes numbers."""

from __future__ import annotations

import torch

from npu_ir import Graph, ScalarType, TensorType, Value
from npu_passes.library.training.scalars_to_tensors.selection import is_only_boundary


def tensor_inputs(graph: Graph) -> Graph:
    """Return a copy of a graph that takes 0-d tensors in place of the floats that it does nothing with but make tensors.

    The names of these inputs and their places in the call stay, and so do floats that something needs as numbers.

    Args:
        graph: After the pass ``scalars-to-tensors``.
    """
    found = graph.clone()
    for value in found.inputs:
        if not isinstance(value.type, ScalarType) or not is_only_boundary(value):
            continue
        types = {node.outputs[0].tensor_type for node in value.users}
        if len(types) == 1:
            _replace(found, value, types.pop())
    return found


def _replace(graph: Graph, number: Value, type: TensorType) -> None:
    """Make one number an input that is a tensor."""
    # Stands in until nothing reads the number any more.
    constant = graph.add_constant(f"tensor of {number.name}", torch.zeros((), dtype=type.dtype))
    for node in number.users:
        graph.replace_all_uses(node.outputs[0], constant)
        graph.erase(node)
    graph.replace_all_uses(constant, graph.replace_input(number, type))
    graph.erase_argument(constant)
