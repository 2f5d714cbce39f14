"""The refusal of graphs whose buffers change their type, or whose inputs overlap in memory."""

from __future__ import annotations

from npu_ir import Graph, NpuError


def require_fixed_signature(graph: Graph, error: type[NpuError], of_buffers: str, of_overlaps: str) -> None:
    """Raise an ``error`` unless buffers keep their types, and no input overlaps another one.

    Args:
        graph: The graph.
        error: The class of the error.
        of_buffers: The reason why buffers keep their types.
        of_overlaps: The reason why inputs do not overlap.
    """
    for target in graph.replacements:
        raise error(
            f"%{target.name} is {target.type}, and {graph.updates[target].type} when the graph has run:"
            f" {of_buffers}",
            where=f"graph {graph.name!r}",
            fix="capture the model as it is after a call, or run the graph with npu_runtime.IRExecutor",
        )
    for value in graph.inputs:
        if value.argument is not None and value.argument.overlaps is not None:
            raise error(
                f"%{value.name} overlaps the input {value.argument.overlaps[0]!r} in memory: {of_overlaps}",
                where=f"graph {graph.name!r}",
                fix="capture the model with inputs that do not overlap, or run the graph with"
                " npu_runtime.IRExecutor",
            )
