"""Graphs are pickled whole: what comes back is equal, and nodes and values come back in it."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch

from npu_ir import Graph, GraphError, Provenance, TensorType, execute_ir, extract_ir, parse_ir
from tests.support.corpus.case import Holding
from tests.support.rows import each_row
from tests.support.small_programs import CONDITION

F32 = TensorType((2, 3), torch.float32)
RELU = "aten.relu.default"


def pickled(item: Any) -> Any:
    return pickle.loads(pickle.dumps(item))  # noqa: S301 - our own


COPIED = [pickled, copy.deepcopy]


def branches() -> Graph:
    def forward(self: Any, x: torch.Tensor) -> Any:
        self.count.add_(1)
        return torch.cond(x.sum() > 0, lambda y: y.sin(), lambda y: y.cos(), (x,)) + self.count

    return extract_ir(Holding(forward, count=torch.zeros(2)), (torch.ones(2),))


def chain(length: int) -> Graph:
    graph = Graph("chain")
    value = graph.add_input("x", F32)
    for _ in range(length):
        value = graph.insert(RELU, [value], types=F32).outputs[0]
    graph.set_outputs(value)
    return graph


@each_row("copied", [*COPIED, copy.copy])
def test_a_graph_as_deep_as_it_is_long_is_copied(copied: Callable[[Graph], Graph]) -> None:
    graph = chain(5_000)

    again = copied(graph)

    assert again == graph
    assert not set(again.nodes) & set(graph.nodes)


def test_regions_symbols_updates_constants_and_prologues_are_pickled() -> None:
    graph, prologue = branches(), parse_ir(CONDITION)
    assert pickled(prologue) == prologue
    assert [node.name for node in pickled(prologue).prologue] == ["cond"]

    again = pickled(graph)

    assert again == graph
    assert len(list(again.graphs())) == 3
    assert torch.equal(
        execute_ir(again, (torch.ones(2),), weights={"count": torch.ones(2)}),
        execute_ir(graph, (torch.ones(2),), weights={"count": torch.ones(2)}),
    )


def test_a_literal_that_looks_like_the_number_of_a_value_stays_one() -> None:
    graph = Graph()
    x = graph.add_input("x", F32)
    graph.set_call([x, 0], {"flag": True})
    graph.set_outputs([0, x, 1])

    again = pickled(graph)

    assert again == graph
    assert again.results[1] == (0, again.inputs[0], 1)


@each_row("copied", COPIED)
def test_nodes_and_values_that_are_copied_with_their_graph_are_those_of_the_copy(
    copied: Callable[[Any], Any],
) -> None:
    graph = chain(2)
    unread = graph.add_parameter("unread", F32)

    again, node, value, argument = copied((graph, graph.nodes[1], graph.nodes[0].outputs[0], unread))

    assert again is not graph
    assert node is again.nodes[1]
    assert value is again.nodes[0].outputs[0]
    assert argument is again.parameters["unread"]


def test_a_region_is_pickled_with_its_program() -> None:
    graph = branches()
    owner = next(node for node in graph.nodes if node.regions)
    region = owner.regions["true_fn"]

    again, inner, node = pickled((graph, region, region.nodes[0]))

    assert inner is again.node(owner.name).regions["true_fn"]
    assert node is inner.nodes[0]


def test_provenance_of_rewritten_nodes_is_pickled() -> None:
    graph = chain(1)
    graph.set_provenance(graph.nodes[0], Provenance("layer", "model.py:3", ("conv", "relu")))

    assert pickled(graph).nodes[0].provenance == Provenance("layer", "model.py:3", ("conv", "relu"))


def test_what_is_in_no_graph_is_not_pickled() -> None:
    graph = chain(2)
    last = graph.nodes[1]
    graph.set_outputs(graph.inputs[0])
    graph.erase(last)

    with pytest.raises(GraphError, match=r"node 'relu#1' is in no graph: a node is copied and pickled with"):
        pickle.dumps(last)
    with pytest.raises(
        GraphError, match=r"%relu#1 is in no graph: a value is copied and pickled with its graph"
    ):
        pickle.dumps(last.outputs[0])
