"""Preconditions for repacking a weight."""

from __future__ import annotations

from npu_ir import Graph, TensorType, Value
from npu_passes.rewriting.weight_dependence import is_weight, is_weight_argument


def weight_problem(graph: Graph, weight: Value) -> str | None:
    """Return the reason why ``weight`` cannot be repacked when weights are bound; None if it can."""
    if graph.owner is not None:
        return "it is in a region: a program has a prologue"
    if weight.producer is not None:
        if weight.producer.in_prologue:
            return None
        known = is_weight(graph, weight)
        where = "in the body: run constant-folding first" if known else "at each call"
        return f"its weight %{weight.name} is computed {where}"
    return (
        None if is_weight_argument(graph, weight) else f"its weight %{weight.name} is an input, or is updated"
    )


def type_problem(*values: Value | None) -> str | None:
    """Return the reason why a value is not a non-empty float32 tensor of static shape; None if all are."""
    for value in values:
        if value is None:
            continue
        if not isinstance(value.type, TensorType) or str(value.type.dtype) != "torch.float32":
            return f"%{value.name} is {value.type}: oneDNN's float32 kernels are what was measured"
        if value.type.symbols:
            return f"%{value.name} is {value.type}: what is fastest depends on sizes"
        if value.type.numel == 0:
            return f"%{value.name} is empty"
    return None
