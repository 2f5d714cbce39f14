"""The contract suite of passes accepts those of the library, and says of others what they break."""

import unittest
from typing import Any

import pytest
import torch

from npu_ir import Graph, extract_ir
from npu_passes import Pass, PassError
from npu_passes.library import PASSES
from npu_passes.testing import PassContract
from tests.support.corpus.case import Function

FEW = ("add", "cat", "linalg.inv", "mm", "nn.functional.linear", "nn.functional.gelu", "softmax", "view")
LIBRARY = sorted((item() for item in PASSES), key=lambda item: item.name)


def contract_of(passes: Any, *graphs: Graph, **settings: Any) -> PassContract:
    attributes = {"passes": passes, "graphs": lambda self: graphs, "operators": (), "random_graphs": 0}
    return type("Contract", (PassContract,), {**attributes, **settings})()


def graph_of(function: Any) -> Graph:
    return extract_ir(Function(function), (torch.ones(2, 3), torch.ones(2, 3)), name="net")


class ReluToClamp(Pass):
    """Clamp in place of relu."""

    name = "relu-to-clamp"
    bound: float = 0.0

    def run(self, graph: Graph) -> bool:
        found = list(graph.nodes_of("aten.relu.default"))
        for node in found:
            with self.rewrite(graph, "clamp", node) as edit:
                edit.replace(node.outputs[0], edit.call("aten.clamp_min.default", *node.inputs, self.bound))
        return bool(found)


class TestReluToClamp(PassContract):
    passes = ReluToClamp
    operators = ("nn.functional.relu", "add")
    random_graphs = 5

    def graphs(self) -> list[Graph]:
        return [graph_of(lambda x, y: torch.relu(x + y))]


class TestByName(PassContract):
    passes = "elim-identity,dead-code"
    operators = ("add", "clone")


@pytest.mark.parametrize("item", LIBRARY, ids=lambda item: item.name)
def test_a_pass_of_the_library_keeps_the_contract(item: Pass) -> None:
    contract = contract_of(item, operators=FEW, random_graphs=10)

    for name, promise in type(contract).promises():
        if name != "test_graphs_that_it_is_made_for_are_changed":
            promise()


@pytest.mark.smoke
def test_a_wrong_pass_is_told_with_the_samples_and_a_fix() -> None:
    contract = contract_of(ReluToClamp(bound=0.5), operators=("add", "nn.functional.relu"))

    with pytest.raises(PassError) as info:
        contract.test_samples_of_operators_compute_the_same()

    first, second, *_ = str(info.value).splitlines()
    assert first == "relu-to-clamp{bound=0.5} fails on 1 of 2 graphs:"
    assert second.startswith("  nn.functional.relu (float32, sample #")
    assert "relu-to-clamp{bound=0.5} changed what the graph computes: result differs" in second
    assert "ReluToClamp\n  fix: rewrite only what computes the same" in str(info.value)


def test_a_wrong_pass_is_told_with_the_seed_of_the_random_graph() -> None:
    contract = contract_of(ReluToClamp(bound=0.5), random_graphs=40)

    with pytest.raises(PassError, match=r"fails on \d of \d+ graphs:\n  random graph \d+: relu-to-clamp"):
        contract.test_random_graphs_compute_the_same()


def test_a_pass_that_changes_none_of_its_graphs_is_told() -> None:
    contract = contract_of(ReluToClamp, graph_of(lambda x, y: x + y))

    with pytest.raises(PassError, match="clamp changes none of the 1 graphs\n  at: 'net'\n  fix: have"):
        contract.test_graphs_that_it_is_made_for_are_changed()
    with pytest.raises(unittest.SkipTest, match="there is no graph that it is made for: override graphs"):
        contract_of(ReluToClamp).test_graphs_that_it_is_made_for_are_changed()


def test_a_description_is_required() -> None:
    class Odd(Pass):
        name = "odd-name"

        def run(self, graph: Graph) -> bool:
            return False

    with pytest.raises(PassError, match="odd-name has no description\n  at: .*Odd\n  fix: give the class a"):
        contract_of(Odd).test_it_is_described()


def test_what_is_not_a_pass_is_told() -> None:
    with pytest.raises(PassError, match="3 is not a pass\n  at: passes\n  fix: give a class derived from"):
        contract_of([3]).test_it_is_described()
    with pytest.raises(PassError, match="there is no pass 'relu-to-clamp'"):
        contract_of("relu-to-clamp").test_it_is_described()
