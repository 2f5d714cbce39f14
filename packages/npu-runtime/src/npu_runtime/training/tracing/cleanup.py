"""Cleanup of the FX graph of a step, before functionalization."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.fx import GraphModule, Node

from npu_runtime.training.tracing.rng_state import is_random, writes_first_argument


def clean_up(module: GraphModule) -> None:
    """Erase profiler markers, and make in-place random ops draw in memory order."""
    for node in list(module.graph.nodes):
        if node.op == "call_function" and str(node.target).startswith("profiler."):
            node.replace_all_uses_with(None)
            module.graph.erase_node(node)
        elif _is_random_fill(node):
            _fill_in_memory_order(module, node)
    module.recompile()


def _is_random_fill(node: Node) -> bool:
    return (
        is_random(node)
        and writes_first_argument(node)
        and not any(isinstance(item, Node) for item in node.args[1:])
    )


def _fill_in_memory_order(module: GraphModule, node: Node) -> None:
    """Make the op fill a view whose elements are in memory order, in which its functional form draws.

    The functional form of an op makes its result in memory order; so dropout of a transposed activation draws
    the same numbers as it does in place.
    """
    filled = node.args[0]
    assert isinstance(filled, Node)
    tensor = filled.meta["val"]
    order = _memory_order(tensor)
    if order == list(range(tensor.dim())):
        return
    with module.graph.inserting_before(node):
        view = module.graph.call_function(torch.ops.aten.permute.default, (filled, order))
        module.graph.call_function(node.target, (view, *node.args[1:]), node.kwargs)  # type: ignore[arg-type]
    node.replace_all_uses_with(filled)
    module.graph.erase_node(node)


def _memory_order(tensor: torch.Tensor) -> Sequence[int]:
    """Return the dimensions from slowest to fastest varying; in their own order if memory has gaps."""
    strides = tensor.stride()
    order = sorted(range(tensor.dim()), key=lambda axis: (-strides[axis], axis))
    is_dense = tensor.permute(order).is_contiguous()
    return order if is_dense else list(range(tensor.dim()))
