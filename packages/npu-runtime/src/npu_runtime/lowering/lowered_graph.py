"""Lowered graphs: what runs a graph, partition by partition, before any device or weight is known."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from npu_ir import Graph, OpNode, Value
from npu_ir.errors import BackendError
from npu_ir.graph.partition import PartitionGraph
from npu_ir.plugins.backend import Backend, BackendOp, Operand, Temporary
from npu_runtime.backends.answers import ask_rows
from npu_runtime.backends.lowering_rules import BrokenRule, find_broken_rule
from npu_runtime.backends.measured_costs import MeasuredCosts
from npu_runtime.backends.partition import ATEN, Partition, extract_partition, partition
from npu_runtime.backends.registry import provider_text
from npu_runtime.lowering.notation import lowered_record, lowered_text
from npu_runtime.lowering.state_updates import StateUpdates, find_state_updates


@dataclass(frozen=True, slots=True)
class BackendProgram:
    """A partition as its backend sees it: a graph of its own, and the ops that the backend makes of it.

    Attributes:
        graph: The graph, as `Backend.lower` and `Backend.prepare` take it.
        ops: The result of `Backend.lower`, which keeps the lowering rules.
        inputs: The values of the whole graph that its inputs stand for.
        outputs: The values of the whole graph that its results stand for.
        in_place: The values of the whole graph that it writes into the memory of state, and that state: one
            of the inputs.
    """

    graph: PartitionGraph
    ops: Sequence[BackendOp]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    in_place: Mapping[Value, Value]


@dataclass(frozen=True, slots=True)
class LoweredPartition:
    """A partition and the ops that run it.

    Attributes:
        partition: The partition.
        ops: The ops, in order; their operands are values of the whole graph, and temporaries.
        program: What the backend prepares; None for ATen, which runs one op for each node.
    """

    partition: Partition
    ops: tuple[BackendOp, ...]
    program: BackendProgram | None


@dataclass(frozen=True, slots=True)
class LoweredOp:
    """An op and the backend that runs it.

    Attributes:
        op: The op; its operands are values of the whole graph, and temporaries.
        backend: The name of the backend.
        refusals: The reasons of other backends for not running it, by name.
    """

    op: BackendOp
    backend: str
    refusals: Mapping[str, str]


@dataclass(frozen=True, eq=False)
class LoweredGraph:
    """A lowered graph: everything that runs it, explains it and dumps it reads this one.

    Attributes:
        graph: The graph before lowering.
        backends: The names of the backends in order of preference; ATen is the last.
        partitions: The partitions of the body, in order. ATen runs the prologue, when weights are bound.
        state: Which nodes write their outputs into the memory of state, or of donated inputs.
    """

    graph: Graph
    backends: tuple[str, ...]
    partitions: tuple[LoweredPartition, ...]
    state: StateUpdates = field(default_factory=StateUpdates)

    @functools.cached_property
    def ops(self) -> tuple[LoweredOp, ...]:
        """The ops that run at each call, in order."""
        return tuple(
            LoweredOp(op, item.partition.backend.name, item.partition.refusals[op.nodes[0]])
            for item in self.partitions
            for op in item.ops
        )

    @property
    def prologue(self) -> tuple[LoweredOp, ...]:
        """The ops that run once, when weights are bound."""
        return tuple(LoweredOp(_aten_op(node), ATEN, {}) for node in self.graph.prologue)

    @property
    def temporaries(self) -> tuple[Temporary, ...]:
        """The tensors between ops that are not values of the graph, in the order of their ops."""
        outputs = (item for lowered in self.ops for item in lowered.op.outputs)
        return tuple(dict.fromkeys(item for item in outputs if isinstance(item, Temporary)))

    @property
    def fallbacks(self) -> tuple[LoweredOp, ...]:
        """The ops that run on ATen because others refused, or would take longer."""
        return tuple(item for item in self.ops if item.refusals and item.backend == ATEN)

    def count(self, kind: str) -> int:
        """Return the number of ops of a kind: a backend's name for an op, or an op type of ATen."""
        return sum(item.op.kind == kind for item in self.ops)

    def to_dict(self) -> dict[str, Any]:
        """Return the lowered graph as plain data, for JSON; values are numbered as in the dump ``20_ir``."""
        return lowered_record(self)

    def __str__(self) -> str:
        return lowered_text(self)


def lower(
    graph: Graph,
    backends: Sequence[Backend],
    *,
    live_weights: bool = False,
    overwritable: Mapping[Value, Value | None] = MappingProxyType({}),
    chosen: Sequence[str] | None = None,
    measured: MeasuredCosts | None = None,
) -> LoweredGraph:
    """Partition the body of a graph, and have each backend lower its partitions, once.

    Nothing is prepared or run, and no device is needed.

    Args:
        graph: The graph. It must not be edited as long as the result is in use.
        backends: The backends in order of preference; the last one is ATen.
        live_weights: Whether weights are read in the memory of their owners, who may change them between
            calls: then they are not among the constant inputs of partitions, and nodes that update them in
            place are partitions of their own.
        overwritable: The state and inputs of which nodes may overwrite a part in place; see
            `find_state_updates`.
        chosen: The name of the backend of each node of the body, if it has been decided.
        measured: Costs in place of those that backends state.

    Raises:
        BackendError: A backend does not keep to its interface: the error names the rule, the node and the
            plugin.
    """
    last_readers: dict[Value, OpNode | None] = {}
    for node in graph.body:
        last_readers.update(dict.fromkeys(node.inputs, node))
    last_readers.update(dict.fromkeys(graph.returned_values))
    state = find_state_updates(graph, overwritable)
    partitions = tuple(
        _lower_partition(item, last_readers, state, live_weights=live_weights)
        for item in partition(graph, backends, chosen, measured, split_updates=live_weights)
    )
    return LoweredGraph(graph, tuple(backend.name for backend in backends), partitions, state)


def _aten_op(node: OpNode) -> BackendOp:
    return BackendOp(node.op_type, node.inputs, node.outputs, (node,))


def _lower_partition(
    item: Partition, last_readers: Mapping[Value, OpNode | None], state: StateUpdates, *, live_weights: bool
) -> LoweredPartition:
    backend, nodes = item.backend, item.nodes
    if backend.name == ATEN:
        return LoweredPartition(item, tuple(map(_aten_op, nodes)), None)
    name = f"{backend.name}-{nodes[0].name}"
    in_place: dict[Value, Value] = {}
    computed: set[Value] = set()  # in memory that the partition makes
    for node in nodes:
        source = state.in_place.get(node.outputs[0]) if node.outputs else None
        if source is not None and source not in computed and ask_rows(backend, node):
            in_place[node.outputs[0]] = source
        else:
            computed.update(node.outputs)
    graph, values = extract_partition(nodes, name, last_readers, live_weights=live_weights, in_place=in_place)
    outer = {inner: value for value, inner in values.items()}
    program = BackendProgram(
        graph,
        _lower_checked(item, graph),
        tuple(outer[value] for value in graph.inputs),
        tuple(outer[value] for value in graph.outputs),
        {value: StateUpdates(in_place).source_of(value) for value in in_place},
    )

    def moved(operands: Sequence[Operand]) -> tuple[Operand, ...]:
        return tuple([outer[operand] if isinstance(operand, Value) else operand for operand in operands])

    ops = tuple(
        replace(
            op,
            inputs=moved(op.inputs),
            outputs=moved(op.outputs),
            nodes=tuple([graph.originals[node] for node in op.nodes]),
            overwrites=moved(op.overwrites),
        )
        for op in program.ops
    )
    return LoweredPartition(item, ops, program)


def _lower_checked(item: Partition, graph: PartitionGraph) -> Sequence[BackendOp]:
    backend, nodes = item.backend, item.nodes
    before = graph.inputs, graph.nodes, graph.outputs
    try:
        ops = backend.lower(graph)
    except BackendError:
        raise
    except Exception as error:
        raise BackendError(
            f"the backend {backend.name!r} failed to lower {len(nodes)} nodes that it supports: "
            f"{type(error).__name__}: {error}",
            where=location_text(nodes),
        ) from error
    if before != (graph.inputs, graph.nodes, graph.outputs):
        broken: BrokenRule | None = BrokenRule("unchanged graph", "lower has changed the graph that it got")
    else:
        broken = find_broken_rule(graph, ops)
    if broken is not None:
        raise BackendError(
            f"the backend {backend.name!r} does not lower as its interface says: {broken.problem}",
            where=f"{location_text(broken.nodes or nodes)}; rule {broken.rule!r}; {provider_text(backend)}",
            fix="npu_runtime.testing.BackendContract tests a backend",
        )
    return ops


def location_text(nodes: Sequence[OpNode]) -> str:
    """Return the names of the first and the last one of several nodes, as errors give them."""
    first, last = nodes[0].name, nodes[-1].name
    return f"node {first!r}" if len(nodes) == 1 else f"nodes {first!r} to {last!r}"
