"""A whole graph as the ops that run it, in order: what backends make of their nodes, and ATen for all others."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from npu_ir import Graph, OpNode, Value
from npu_ir.errors import BackendError
from npu_ir.plugins.backend import Backend, BackendOp, Operand, Temporary
from npu_runtime.backends.lowering_rules import lowering_problem
from npu_runtime.backends.partition import Choice, Segment, assign, segment_of
from npu_runtime.backends.registry import named_backends
from npu_runtime.lowering.aten_calls import ATEN


@dataclass(frozen=True, slots=True)
class LoweredOp:
    """One op, and who runs it.

    Attributes:
        op: Its operands are values of the whole graph, and temporaries.
        backend: Who runs it.
        refusals: Why each backend that was asked before does not, by name: the reason it fell back.
    """

    op: BackendOp
    backend: str
    refusals: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Lowered:
    """What runs a graph.

    Attributes:
        graph: What was lowered.
        backends: Who was asked, in order of preference; ATen is the last.
        prologue: What runs once, when weights are bound: always by ATen.
        ops: What runs at each call, in order.
    """

    graph: Graph
    backends: tuple[str, ...]
    prologue: tuple[LoweredOp, ...]
    ops: tuple[LoweredOp, ...]

    @property
    def temporaries(self) -> tuple[Temporary, ...]:
        """What ops pass on that the graph does not have, in the order in which it is made."""
        made = (item for lowered in self.ops for item in lowered.op.outputs)
        return tuple(dict.fromkeys(item for item in made if isinstance(item, Temporary)))

    @property
    def fallbacks(self) -> tuple[LoweredOp, ...]:
        """The ops that run on ATen because the others refused."""
        return tuple(item for item in self.ops if item.refusals and item.backend == ATEN)

    def count(self, kind: str) -> int:
        """Return how many ops are of a kind: a backend's name of an op, or an op type of ATen."""
        return sum(item.op.kind == kind for item in self.ops)

    def __iter__(self) -> Iterator[BackendOp]:
        return (item.op for item in self.ops)

    def __len__(self) -> int:
        return len(self.ops)

    def __str__(self) -> str:
        from npu_runtime.training.dumps.write_dumps import lowered_text

        return lowered_text(self)


def lower_to_backend_ops(graph: Graph, backend: str | Backend | Sequence[str | Backend] = ATEN) -> Lowered:
    """Return the ops that run a graph: those of the backends for what they take, those of ATen for the rest.

    Nothing is prepared or run, and no device is needed. Consecutive nodes of one backend are lowered together, as
    `IRExecutor` and the planned program run them.

    Args:
        graph: The program; it stays as it is.
        backend: A name, a `Backend`, or several in order of preference.

    Raises:
        GraphError: The graph breaks a rule of the IR.
        BackendError: There is no such backend, or it does not keep to its interface.
    """
    graph.check()
    backends = named_backends(backend)
    choices = assign(graph, backends)
    ops: list[LoweredOp] = []
    for chosen, nodes in itertools.groupby(graph.body, lambda node: choices[node].backend):
        ops += _lowered(chosen, list(nodes), choices)
    prologue = tuple(LoweredOp(_aten_op(node), ATEN) for node in graph.prologue)
    return Lowered(graph, tuple(item.name for item in backends), prologue, tuple(ops))


def _lowered(
    backend: Backend, nodes: Sequence[OpNode], choices: Mapping[OpNode, Choice]
) -> Iterator[LoweredOp]:
    if backend.name == ATEN:
        for node in nodes:
            yield LoweredOp(_aten_op(node), ATEN, dict(choices[node].refusals))
        return
    segment = segment_of(nodes, f"{backend.name}-{nodes[0].name}")
    for op in _backend_ops(backend, segment):
        yield LoweredOp(op, backend.name, dict(choices[op.nodes[0]].refusals))


def _aten_op(node: OpNode) -> BackendOp:
    return BackendOp(node.op_type, node.inputs, node.outputs, (node,))


def _backend_ops(backend: Backend, segment: Segment) -> list[BackendOp]:
    """Return what a backend makes of a segment, in terms of the whole graph."""
    place = f"nodes {segment.nodes[0].name!r} to {segment.nodes[-1].name!r}"
    try:
        ops = backend.lower(segment.graph)
    except BackendError:
        raise
    except Exception as error:
        raise BackendError(
            f"the backend {backend.name!r} failed to lower {len(segment.nodes)} nodes that it supports: {error}",
            where=place,
        ) from error
    problem = lowering_problem(segment.graph, ops)
    if problem is not None:
        raise BackendError(
            f"the backend {backend.name!r} does not lower as its interface says: {problem}",
            where=place,
            fix="npu_runtime.testing.BackendContract tests a backend",
        )
    values: dict[Value, Value] = dict(zip(segment.graph.inputs, segment.inputs, strict=True))
    whole = dict(zip(segment.graph.nodes, segment.nodes, strict=True))
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
