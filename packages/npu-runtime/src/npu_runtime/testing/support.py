"""Contract tests before anything runs: name, devices, support of nodes, lowering, allocation."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import torch

from npu_ir import Graph, OpNode, TensorType, format_ir
from npu_ir.errors import BackendError
from npu_ir.plugins.backend import Backend
from npu_passes import all_pipelines
from npu_runtime.backends.lowering_rules import lowering_problem
from npu_runtime.testing.data import shared_pairs, type_problem
from npu_runtime.testing.trials import Trials, error_context
from npu_runtime.testing.zoo import odd_graphs

__tracebackhide__ = True  # pytest shows the error, and frames of the plugin, not those of this module

_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


class SupportContract(Trials):
    """The promises of `name`, `devices`, `supports`, `by_cost`, `pipeline`, `lower` and `allocate`."""

    def test_the_name_is_in_kebab_case(self) -> None:
        name = self.backend.name
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise BackendError(
                f"the name is {name!r}", where="name", fix="lower-case words with hyphens between: my-device"
            )

    def test_the_devices_are_the_same_each_time(self) -> None:
        first, second = self.backend.devices(), self.backend.devices()
        if not isinstance(first, Sequence) or not all(isinstance(item, torch.device) for item in first):
            raise BackendError(
                f"devices() returns {first!r}", where="devices", fix="a sequence of torch.device"
            )
        if list(first) != list(second) or len(set(first)) != len(first):
            raise BackendError(
                f"devices() returns {list(first)}, then {list(second)}",
                where="devices",
                fix="the same, each once",
            )

    def test_an_absence_is_explained(self) -> None:
        reason = self.backend.absence()
        if not isinstance(reason, str) or not reason.strip():
            raise BackendError(
                f"absence() returns {reason!r}",
                where="absence",
                fix="say in a few words why devices() is empty",
            )

    def test_supports_answers_for_any_node(self) -> None:
        for node, name in self._all_nodes():
            with error_context(f"supports({node.op_type})", name):
                reason = self.backend.supports(node)
            if reason is not None and not (isinstance(reason, str) and reason.strip()):
                raise BackendError(
                    f"supports({node.op_type}) returns {reason!r}",
                    where=name,
                    fix="None if it can, else why not, in a few words",
                )

    def test_supports_depends_on_nothing_but_the_node(self) -> None:
        for name, graph in self.graphs().items():
            for node in graph.body:
                first, again = self.backend.supports(node), self.backend.supports(node)
                elsewhere = self.backend.supports(_copy_alone(node))
                if not first == again == elsewhere:
                    raise BackendError(
                        f"supports({node.op_type}) returns {first!r}, {again!r},"
                        f" and in another graph {elsewhere!r}",
                        where=name,
                        fix="look at its op, attributes and types only, and name no node or value in a"
                        " reason",
                    )

    def test_what_competes_has_its_name_and_a_known_pipeline(self) -> None:
        chosen, device = self.backend.by_cost(), self.the_device()
        if chosen is not None and (not isinstance(chosen, Backend) or chosen.name != self.backend.name):
            raise BackendError(
                f"by_cost() returns {chosen!r}",
                where="by_cost",
                fix=f"a backend with the name {self.backend.name!r}, or None",
            )
        for backend in (self.backend, chosen or self.backend):
            for question in ("pipeline", "training_pipeline"):
                if (name := getattr(backend, question)(device)) not in all_pipelines():
                    raise BackendError(
                        f"{question}({device}) returns {name!r}",
                        where=question,
                        fix=f"one of {', '.join(sorted(all_pipelines()))}",
                    )

    def test_lowering_and_preparing_leave_the_graph_as_it_is(self) -> None:
        device = self.the_device()
        for name, graph in self.parts():
            before = format_ir(graph)
            with error_context("lower", name):
                ops = self.backend.lower(graph)
                given = list(ops)
            with error_context("prepare", name):
                self.backend.prepare(graph, ops, device)
            if format_ir(graph) != before or list(ops) != given:
                raise BackendError(
                    "lower or prepare edited the graph or the ops", where=name, fix="work on graph.clone()"
                )

    def test_the_ops_cover_the_graph(self) -> None:
        for name, graph in self.parts():
            with error_context("lower", name):
                problem = lowering_problem(graph, self.backend.lower(graph))
            if problem is not None:
                raise BackendError(
                    problem,
                    where=f"{name}\n{str(graph).rstrip()}",
                    fix="correct what lower(graph) returns",
                )

    def test_allocate_returns_memory_of_the_type(self) -> None:
        device = self.the_device()
        for name, graph in self.parts():
            types = [value.type for value in (*graph.inputs, *graph.outputs)]
            for type in (item for item in types if isinstance(item, TensorType)):
                pair = [self.backend.allocate(type, device) for _ in range(2)]
                problem = type_problem(pair[0], type, device)
                if problem is not None:
                    raise BackendError(
                        f"allocate({type}): what it returns {problem}",
                        where=name,
                        fix="allocate the shape, dtype and strides of the type",
                    )
                if shared_pairs(pair[:1], pair[1:]):
                    raise BackendError(
                        f"allocate({type}) returns the same memory twice",
                        where=name,
                        fix="return memory that nothing else has",
                    )

    def _all_nodes(self) -> Iterator[tuple[OpNode, str]]:
        for graph in (*self.graphs().values(), *odd_graphs()):
            yield from ((node, graph.name) for part in graph.graphs() for node in part.nodes)


def _copy_alone(node: OpNode) -> OpNode:
    """Return a copy of a node in a graph of its own, with other names."""
    assert node.graph is not None
    graph = Graph("another")
    for name, values in node.graph.symbols.items():
        graph.add_symbol(name, values)
    inputs = {
        value: graph.add_input(f"other_{value.name}", value.type) for value in dict.fromkeys(node.inputs)
    }
    return graph.insert(
        node.op_type,
        [inputs[value] for value in node.inputs],
        node.attrs,
        types=[value.type for value in node.outputs],
        operands=node.operands,
        regions={argument: region.clone() for argument, region in node.regions.items()},
        name=f"other_{node.name}",
    )
