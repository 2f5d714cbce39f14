"""Explanation of an executor or a graph: backends and kernels of its nodes, and optionally their times."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from npu_ir import Graph, NpuError, OpNode
from npu_ir.errors import BackendError
from npu_ir.plugins.backend import Backend
from npu_passes.manager.statistics import FlopCounter
from npu_runtime.backends.partition import Assignment, assign_backends, extract_partition
from npu_runtime.backends.registry import named_backends
from npu_runtime.diagnostics.explain.explanation import Explanation, NodeExplanation

if TYPE_CHECKING:
    from npu_runtime.executor.executor import IRExecutor

_ATEN = "aten"


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
    kernels = {
        node: instruction.kernel
        for instruction in executor.instructions
        for node in instruction.nodes
        if instruction.backend == _ATEN
    }
    seconds = None
    if args is not None or kwargs is not None:
        from npu_runtime.diagnostics.profile import profile

        times = profile(executor, () if args is None else args, kwargs, repeat=repeat).steps
        seconds = {executor.graph.node(item.name): item.seconds for item in times}
    return _make_explanation(executor.graph, executor.assignments, executor.backends, kernels, seconds)


def explain_graph(graph: Graph, backends: str | Backend | Sequence[str | Backend]) -> Explanation:
    """Explain the partitioning of a graph without passes and without weights, so a graph of any size will do.

    Args:
        graph: The graph; note that an executor would run passes over it first.
        backends: A name or instance, or several in order of preference. No device is needed.

    Raises:
        BackendError: There is no such backend, or it violates its interface.
    """
    candidates = named_backends(backends)
    return _make_explanation(graph, assign_backends(graph, candidates), candidates, {}, None)


def _make_explanation(
    graph: Graph,
    assignments: Mapping[OpNode, Assignment],
    backends: Sequence[Backend],
    kernels: Mapping[OpNode, str],
    seconds: Mapping[OpNode, float] | None,
) -> Explanation:
    flops = FlopCounter()
    names = tuple(backend.name for backend in backends)
    nodes = []
    for part, (backend, row) in enumerate(_partitions(graph, assignments)):
        called = kernels if backend.name == _ATEN else _kernel_names(backend, row)
        nodes += [
            NodeExplanation(
                name=node.name,
                op_type=node.op_type,
                module=node.provenance.module,
                backend=backend.name,
                kernel=called.get(node, node.op_type),
                part=part,
                reasons=_reasons(assignments[node], names),
                flops=flops(node),
                seconds=None if seconds is None else seconds.get(node, 0.0),
            )
            for node in row
        ]
    return Explanation(graph.name, names, tuple(nodes), len(graph.prologue))


def _partitions(
    graph: Graph, assignments: Mapping[OpNode, Assignment]
) -> Iterator[tuple[Backend, list[OpNode]]]:
    """Yield the partitions: runs of consecutive nodes of one backend."""
    for backend, nodes in itertools.groupby(graph.body, lambda node: assignments[node].backend):
        yield backend, list(nodes)


def _reasons(assignment: Assignment, names: Sequence[str]) -> dict[str, str]:
    """Return the reason of each backend, except the assigned one, for not running a node."""
    later = f"{assignment.backend.name} is preferred, and takes it"
    return {name: assignment.refusals.get(name, later) for name in names if name != assignment.backend.name}


def _kernel_names(backend: Backend, nodes: Sequence[OpNode]) -> dict[OpNode, str]:
    """Return the names of the kernels that a backend calls for each node of a partition."""
    graph = extract_partition(nodes, backend.name).graph
    try:
        ops = backend.lower(graph)
    except NpuError:
        raise
    except Exception as error:
        raise BackendError(
            f"the backend {backend.name!r} failed to lower nodes that it supports: "
            f"{type(error).__name__}: {error}",
            where=f"nodes {nodes[0].name!r} to {nodes[-1].name!r}",
        ) from error
    called: dict[OpNode, list[str]] = {}
    for op in ops:
        for node in op.nodes:
            called.setdefault(node, []).append(op.kernel or op.kind)
    return {node: ", ".join(called.get(copy, ())) for node, copy in zip(nodes, graph.nodes, strict=True)}
