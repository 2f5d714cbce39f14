"""Explanation of an executor or a graph: backends and kernels of its nodes, and optionally their times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from npu_ir import Graph, OpNode
from npu_ir.graph.requirement import require_graph
from npu_ir.plugins.backend import Backend
from npu_passes.manager.statistics import FlopCounter
from npu_runtime.backends.measured_costs import MeasuredCosts
from npu_runtime.backends.partition import ATEN
from npu_runtime.backends.registry import named_backends
from npu_runtime.codegen.compiler import held_contents
from npu_runtime.diagnostics.explain.explanation import Explanation, NodeExplanation
from npu_runtime.executor.requirement import require_executor
from npu_runtime.lowering.lowered_graph import LoweredGraph, LoweredPartition, lower

if TYPE_CHECKING:
    from npu_runtime.executor.executor import IRExecutor


def explain(
    executor: IRExecutor,
    args: Sequence[Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    repeat: int = 20,
) -> Explanation:
    """Explain the partitioning of an executor: the backend of each node, and the reasons of the others.

    Args:
        executor: The executor, which is not changed.
        args: Positional arguments of a call to time; None for no timing.
        kwargs: Its keyword arguments.
        repeat: The number of timed calls, of which the median counts.
    """
    require_executor(executor)
    seconds: dict[OpNode, float] | None = None
    if args is not None or kwargs is not None:
        from npu_runtime.diagnostics.profile import profile

        executor = executor.for_call(() if args is None else args, kwargs)
        times = profile(executor, () if args is None else args, kwargs, repeat=repeat).steps
        seconds = {}
        for item in times:
            node = executor.graph.node(item.name)
            seconds[node] = seconds.get(node, 0.0) + item.seconds
    kernels = {
        node: instruction.kernel
        for instruction in executor.instructions
        for node in instruction.nodes
        if instruction.backend == ATEN
    }
    return explain_lowered(executor.lowered, kernels, seconds)


def explain_graph(
    graph: Graph,
    backends: str | Backend | Sequence[str | Backend],
    measured: MeasuredCosts | None = None,
) -> Explanation:
    """Explain the partitioning of a graph without passes and without weights, so a graph of any size will do.

    Args:
        graph: The graph; note that an executor would run passes over it first.
        backends: A name or instance, or several in order of preference. No device is needed.
        measured: Costs in place of those that backends state, as `npu_runtime.tune` returns them.

    Raises:
        BackendError: There is no such backend, or it violates its interface.
    """
    require_graph(graph)
    overwritable = held_contents(graph)
    return explain_lowered(
        lower(graph, named_backends(backends), overwritable=overwritable, measured=measured)
    )


def explain_lowered(
    lowered: LoweredGraph,
    kernels: Mapping[OpNode, str] | None = None,
    seconds: Mapping[OpNode, float] | None = None,
) -> Explanation:
    """Explain the partitioning of a lowered graph.

    Args:
        lowered: The lowered graph.
        kernels: The kernels of nodes that ATen runs, where they are not those of the op.
        seconds: The times of nodes; None for no times.
    """
    flops = FlopCounter()
    nodes = []
    for part, item in enumerate(lowered.partitions):
        backend = item.partition.backend.name
        called = kernels or {} if backend == ATEN else _kernel_names(item)
        preferred = {
            name: f"{backend} is preferred, and takes it" for name in lowered.backends if name != backend
        }
        nodes += [
            NodeExplanation(
                name=node.name,
                op_type=node.op_type,
                module=node.provenance.module,
                backend=backend,
                kernel=called.get(node, node.op_type),
                part=part,
                reasons={**preferred, **item.partition.refusals[node]},
                passed_over=tuple(item.partition.backend.passed_over(node)),
                flops=flops(node),
                seconds=None if seconds is None else seconds.get(node, 0.0),
            )
            for node in item.partition.nodes
        ]
    state = lowered.state
    return Explanation(
        lowered.graph.name,
        lowered.backends,
        tuple(nodes),
        len(lowered.graph.prologue),
        tuple(value.name for value in state.in_place.values() if value.producer is None),
        {value.name: reason for value, reason in state.copied.items()},
    )


def _kernel_names(item: LoweredPartition) -> dict[OpNode, str]:
    """Return the names of the kernels that a backend calls for each node of a partition."""
    called: dict[OpNode, list[str]] = {}
    for op in item.ops:
        for node in op.nodes:
            called.setdefault(node, []).append(op.kernel or op.kind)
    return {node: ", ".join(names) for node, names in called.items()}
