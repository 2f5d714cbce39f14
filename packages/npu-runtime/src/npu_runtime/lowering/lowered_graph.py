"""Lowering of a whole graph to ops: backends lower their partitions, and ATen runs the remaining nodes."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from npu_ir import Graph, OpNode, Value
from npu_ir.errors import BackendError
from npu_ir.plugins.backend import Backend, BackendOp, Operand, Temporary
from npu_runtime.backends.lowering_rules import lowering_problem
from npu_runtime.backends.partition import Assignment, Partition, assign_backends, extract_partition
from npu_runtime.backends.registry import named_backends
from npu_runtime.lowering.aten_calls import ATEN
from npu_runtime.lowering.lowered_text import lowered_text


@dataclass(frozen=True, slots=True)
class LoweredOp:
    """An op and the backend that runs it.

    Attributes:
        op: The op; its operands are values of the whole graph, and temporaries.
        backend: The name of the backend.
        refusals: The reason of each preferred backend for not supporting it, by name.
    """

    op: BackendOp
    backend: str
    refusals: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Lowered:
    """A lowered graph: the ops that run it, in order.

    Attributes:
        graph: The graph before lowering.
        backends: The names of the backends in order of preference; ATen is the last.
        prologue: The ops that run once, when weights are bound: always on ATen.
        ops: The ops that run at each call.
    """

    graph: Graph
    backends: tuple[str, ...]
    prologue: tuple[LoweredOp, ...]
    ops: tuple[LoweredOp, ...]

    @property
    def temporaries(self) -> tuple[Temporary, ...]:
        """The tensors between ops that are not values of the graph, in the order of their ops."""
        outputs = (item for lowered in self.ops for item in lowered.op.outputs)
        return tuple(dict.fromkeys(item for item in outputs if isinstance(item, Temporary)))

    @property
    def fallbacks(self) -> tuple[LoweredOp, ...]:
        """The ops that run on ATen because the others refused."""
        return tuple(item for item in self.ops if item.refusals and item.backend == ATEN)

    def count(self, kind: str) -> int:
        """Return the number of ops of a kind: a backend's name for an op, or an op type of ATen."""
        return sum(item.op.kind == kind for item in self.ops)

    def __iter__(self) -> Iterator[BackendOp]:
        return (item.op for item in self.ops)

    def __len__(self) -> int:
        return len(self.ops)

    def __str__(self) -> str:
        return lowered_text(self)


def lower_to_backend_ops(graph: Graph, backend: str | Backend | Sequence[str | Backend] = ATEN) -> Lowered:
    """Lower a graph to ops: those of the backends for the nodes they support, those of ATen for the rest.

    Nothing is prepared or run, and no device is needed. A partition, consecutive nodes of one backend, is
    lowered as a whole, as `IRExecutor` and the planned program run it.

    Args:
        graph: The graph, which is not changed.
        backend: A name, a `Backend`, or several in order of preference.

    Raises:
        GraphError: The graph breaks a rule of the IR.
        BackendError: There is no such backend, or it violates its interface.
    """
    graph.check()
    backends = named_backends(backend)
    assignments = assign_backends(graph, backends)
    ops: list[LoweredOp] = []
    for chosen, nodes in itertools.groupby(graph.body, lambda node: assignments[node].backend):
        ops += _lower_nodes(chosen, list(nodes), assignments)
    prologue = tuple(LoweredOp(_aten_op(node), ATEN) for node in graph.prologue)
    return Lowered(graph, tuple(item.name for item in backends), prologue, tuple(ops))


def _lower_nodes(
    backend: Backend, nodes: Sequence[OpNode], assignments: Mapping[OpNode, Assignment]
) -> Iterator[LoweredOp]:
    if backend.name == ATEN:
        for node in nodes:
            yield LoweredOp(_aten_op(node), ATEN, dict(assignments[node].refusals))
        return
    partition = extract_partition(nodes, f"{backend.name}-{nodes[0].name}")
    for op in _lower_partition(backend, partition):
        yield LoweredOp(op, backend.name, dict(assignments[op.nodes[0]].refusals))


def _aten_op(node: OpNode) -> BackendOp:
    return BackendOp(node.op_type, node.inputs, node.outputs, (node,))


def _lower_partition(backend: Backend, partition: Partition) -> list[BackendOp]:
    """Lower a partition; the ops returned refer to values and nodes of the whole graph."""
    location = f"nodes {partition.nodes[0].name!r} to {partition.nodes[-1].name!r}"
    try:
        ops = backend.lower(partition.graph)
    except BackendError:
        raise
    except Exception as error:
        raise BackendError(
            f"the backend {backend.name!r} failed to lower {len(partition.nodes)} nodes "
            f"that it supports: {error}",
            where=location,
        ) from error
    problem = lowering_problem(partition.graph, ops)
    if problem is not None:
        raise BackendError(
            f"the backend {backend.name!r} does not lower as its interface says: {problem}",
            where=location,
            fix="npu_runtime.testing.BackendContract tests a backend",
        )
    # The backend has lowered a copy of the nodes: its ops are moved back to the whole graph.
    values: dict[Value, Value] = dict(zip(partition.graph.inputs, partition.inputs, strict=True))
    whole = dict(zip(partition.graph.nodes, partition.nodes, strict=True))
    for copy, node in whole.items():
        values.update(zip(copy.outputs, node.outputs, strict=True))

    def moved(operands: Sequence[Operand]) -> tuple[Operand, ...]:
        return tuple(values[item] if isinstance(item, Value) else item for item in operands)

    return [
        dataclasses.replace(
            op,
            inputs=moved(op.inputs),
            outputs=moved(op.outputs),
            nodes=tuple(whole[node] for node in op.nodes),
        )
        for op in ops
    ]
