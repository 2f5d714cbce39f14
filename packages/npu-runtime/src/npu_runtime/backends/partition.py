"""Partitioning: which backend runs each node, why no other does, and partitions as graphs of their own."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from npu_ir import Graph, InputKind, OpNode, TensorType, Value
from npu_ir.cli.quantities import time_text
from npu_ir.core.storage import has_overlapping_elements
from npu_ir.graph.copy import copy_node
from npu_ir.graph.partition import PartitionGraph
from npu_ir.plugins.backend import Backend
from npu_runtime.backends.answers import ask_cost, ask_free, ask_in_place, ask_support, require_overhead
from npu_runtime.backends.measured_costs import MeasuredCosts

ATEN = "aten"  # the name of the backend that supports every node


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition: consecutive nodes of one backend.

    Attributes:
        backend: The backend that runs them.
        nodes: The nodes, in order.
        refusals: For each node, by name of a backend, why that one does not run it: it does not support it,
            or it would take longer. Without those that come after ``backend`` and were not asked.
        seconds: What a call costs; None where the nodes were not assigned by cost.
        updates_in_place: Whether it is one node that can update tensors in place, by
            `Backend.updates_in_place`.
    """

    backend: Backend
    nodes: tuple[OpNode, ...]
    refusals: Mapping[OpNode, Mapping[str, str]]
    seconds: float | None = None
    updates_in_place: bool = False


def partition(
    graph: Graph,
    backends: Sequence[Backend],
    chosen: Sequence[str] | None = None,
    measured: MeasuredCosts | None = None,
    *,
    split_updates: bool = False,
) -> tuple[Partition, ...]:
    """Return the partitions of the body, in order; neighbours have different backends.

    The first backend that supports a node runs it, unless that one states a cost for it. Then the costs that
    are stated decide: their sum over the body, `Backend.call_overhead` of each partition included, is the
    least possible. Where ``measured`` knows a node on all backends that support it, these costs take the
    place of those that are stated. Nodes at the end of a partition that are free (`Backend.is_free`) are left
    to ATen.

    Args:
        graph: The program.
        backends: The backends in order of preference; the last one supports every node.
        chosen: The name of the backend of each node, if it has been decided: then none of them is asked.
        measured: Costs that were measured on this machine.
        split_updates: Whether nodes that update in place are partitions of their own.

    Raises:
        BackendError: A backend raises an error, or gives an answer that its interface does not allow.
    """
    if chosen is not None:
        return _partition_as_chosen(graph, backends, chosen)
    for backend in backends:
        require_overhead(backend)
    bids = [_collect_bids(node, backends, measured) for node in graph.body]
    places = _release_free_ends(_choose_backends(bids, backends), bids, backends)
    partitions = []
    updates: list[OpNode | None] = [None] * len(bids)
    if split_updates:
        for index, (place, bid) in enumerate(zip(places, bids, strict=True)):
            if place != len(backends) - 1 and ask_in_place(backends[place], bid.node):
                updates[index] = bid.node
    assigned = zip(places, updates, bids, strict=True)
    for (place, update), items in itertools.groupby(assigned, lambda item: item[:2]):
        own = [bid for *_, bid in items]
        costs = [bid.seconds[place] for bid in own if bid.is_stated and place in bid.seconds]
        partitions.append(
            Partition(
                backends[place],
                tuple(bid.node for bid in own),
                {bid.node: bid.refusals for bid in own},
                sum(costs) + backends[place].call_overhead if costs else None,
                update is not None,
            )
        )
    return tuple(partitions)


def _partition_as_chosen(
    graph: Graph, backends: Sequence[Backend], chosen: Sequence[str]
) -> tuple[Partition, ...]:
    named = {backend.name: backend for backend in backends}
    partitions = []
    for name, pairs in itertools.groupby(zip(chosen, graph.body, strict=True), lambda pair: pair[0]):
        nodes = tuple(node for _, node in pairs)
        others = {other: f"{name} was chosen when the executor was saved" for other in named if other != name}
        partitions.append(Partition(named[name], nodes, dict.fromkeys(nodes, others)))
    return tuple(partitions)


@dataclass(frozen=True, slots=True)
class _Bids:
    """The backends that may run a node.

    Attributes:
        node: The node.
        seconds: The cost of a call on each, by its place in the order of preference.
        refusals: The reasons of the others, by name.
        is_stated: Whether the costs are those of the backends; if not, one takes the node at any cost.
        is_measured: Whether the costs were measured.
    """

    node: OpNode
    seconds: dict[int, float]
    refusals: dict[str, str]
    is_stated: bool = True
    is_measured: bool = False


def _release_free_ends(
    chosen: Sequence[int], bids: Sequence[_Bids], backends: Sequence[Backend]
) -> list[int]:
    """Return the places of the backends after the last one took the free nodes at the ends of partitions."""
    released = list(chosen)
    last = len(backends) - 1
    following = last  # the backend of the node after
    for index in reversed(range(len(chosen))):
        place, bid = chosen[index], bids[index]
        if place not in (following, last) and ask_free(backends[place], bid.node):
            released[index] = last
            bid.refusals[backends[place].name] = "a free node at the end of a partition saves nothing"
        following = released[index]
    return released


def _collect_bids(node: OpNode, backends: Sequence[Backend], measured: MeasuredCosts | None) -> _Bids:
    if measured is not None and (bids := _measured_bids(node, backends, measured)) is not None:
        return bids
    seconds: dict[int, float] = {}
    refusals: dict[str, str] = {}
    last = len(backends) - 1
    for place, backend in enumerate(backends):
        reason = ask_support(backend, node) if place != last else None
        if reason is not None:
            refusals[backend.name] = reason
            continue
        # The last one is not asked what it costs where nobody else bids: its estimates take time.
        cost = ask_cost(backend, node) if place != last or seconds else None
        if cost is None and not seconds:
            return _Bids(node, {place: 0.0}, refusals, is_stated=False)
        if cost is not None:
            seconds[place] = cost
    return _Bids(node, seconds, refusals)


def _measured_bids(node: OpNode, backends: Sequence[Backend], measured: MeasuredCosts) -> _Bids | None:
    """Return the bids of all backends that support a node, as measured; None unless all are known."""
    reasons = {place: ask_support(backend, node) for place, backend in enumerate(backends[:-1])}
    refusals = {backends[place].name: reason for place, reason in reasons.items() if reason is not None}
    places = [place for place in range(len(backends)) if reasons.get(place) is None]
    seconds = measured.of(node, [backends[place] for place in places])
    if seconds is None:
        return None
    return _Bids(node, dict(zip(places, seconds, strict=True)), refusals, is_measured=True)


def _choose_backends(bids: Sequence[_Bids], backends: Sequence[Backend]) -> list[int]:
    """Return the place of the backend of each node, with the least total cost; add the losers' refusals.

    Dynamic programming over nodes and backends (the Viterbi algorithm), from both ends: the least cost of all
    nodes if one of them runs on a given backend is that of the nodes up to it plus that of those after it.
    """
    if all(len(bid.seconds) == 1 for bid in bids):
        return [place for bid in bids for place in bid.seconds]

    def entry(previous: int | None, place: int) -> float:
        return 0.0 if previous == place else backends[place].call_overhead

    rests = [dict.fromkeys(bids[-1].seconds, 0.0)]
    for bid, previous in zip(reversed(bids), list(reversed(bids))[1:], strict=False):
        costs = {place: bid.seconds[place] + rest for place, rest in rests[-1].items()}
        rests.append(
            {one: min(cost + entry(one, place) for place, cost in costs.items()) for one in previous.seconds}
        )
    totals: dict[int | None, float] = {None: 0.0}  # of the nodes so far, by the backend of the last one
    chosen: list[int] = []
    for bid, rest in zip(bids, reversed(rests), strict=True):
        totals = {
            place: seconds + min(total + entry(previous, place) for previous, total in totals.items())
            for place, seconds in bid.seconds.items()
        }
        last = chosen[-1] if chosen else None
        # Of equal costs, the first one in the order of preference.
        best = min(rest, key=lambda place: bid.seconds[place] + rest[place] + entry(last, place))
        chosen.append(best)
        for place in bid.seconds.keys() - {best}:
            loss = max(0.0, totals[place] + rest[place] - totals[best] - rest[best])
            own, other = time_text(bid.seconds[best]), time_text(bid.seconds[best] + loss)
            source = ", measured" if bid.is_measured else ""
            name = backends[best].name
            bid.refusals[backends[place].name] = f"{name} is cheaper: {own} against {other}{source}"
    return chosen


def extract_partition(
    nodes: Sequence[OpNode],
    name: str,
    last_readers: Mapping[Value, OpNode | None] | None = None,
    *,
    live_weights: bool = False,
    in_place: Mapping[Value, Value] = MappingProxyType({}),
) -> tuple[PartitionGraph, dict[Value, Value]]:
    """Return consecutive nodes as a graph of their own, and its values by those of the whole graph.

    Args:
        nodes: The nodes. Values that they read from outside become inputs; values used outside, results.
        name: The name of the graph.
        last_readers: The last node of the body that reads a value; None if the graph returns it. Without it,
            no input is overwritable.
        live_weights: Whether others may change weights in place between calls, so that these are not
            constant.
        in_place: The outputs that are written into the memory of another value, by `PartitionGraph.in_place`.
    """
    inside = set(nodes)
    outputs = [value for node in nodes for value in node.outputs]
    outside = dict.fromkeys(value for node in nodes for value in node.inputs)
    for value in outputs:
        outside.pop(value, None)
    graph = PartitionGraph(name)
    values = {value: graph.add_input(value.name, value.type) for value in outside}
    graph.originals = {copy_node(graph, node, values): node for node in nodes}
    used_outside = (value for value in outputs if any(user not in inside for user, _ in value.uses))
    graph.set_outputs(tuple(values[value] for value in used_outside if value not in in_place))
    graph.in_place = {values[value]: values[source] for value, source in in_place.items()}
    whole = nodes[0].graph
    assert whole is not None
    graph.constant_inputs = frozenset(
        values[value] for value in outside if _is_constant(value, whole, live_weights=live_weights)
    )
    graph.overwritable_inputs = frozenset(
        values[value]
        for value in outside
        if last_readers is not None and last_readers[value] in inside and _is_computed(value)
    )
    return graph, values


def _is_constant(value: Value, graph: Graph, *, live_weights: bool) -> bool:
    """Return whether a value has the same content in each call, until other weights are bound."""
    if value.argument is None:
        return value.producer is not None and value.producer.in_prologue
    kind = value.argument.kind
    is_fixed = kind is InputKind.CONSTANT if live_weights else kind is not InputKind.INPUT
    return is_fixed and value not in graph.updates


def _is_computed(value: Value) -> bool:
    """Return whether a value is a tensor that each call computes, without elements that may overlap."""
    type = value.type
    if value.producer is None or value.producer.in_prologue or not isinstance(type, TensorType):
        return False
    return type.strides is None or not (type.symbols or has_overlapping_elements(type))
