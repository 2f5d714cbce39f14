"""Large graphs: whole-graph work grows with their size, edits do not, and no depth is too deep."""

import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch

from npu_ir import Graph, TensorType, execute_ir, parse_ir
from npu_ir.graph.topological_order import topological_order
from tests.support.rows import each_row

F32 = TensorType((2,), torch.float32)
ADD, NEG = "aten.add.Tensor", "aten.neg.default"
LARGE = pytest.mark.parametrize("size", [4_000, pytest.param(100_000, marks=pytest.mark.exhaustive)])


def chain(length: int) -> Graph:
    """Return ``x + x + ... + x``: every node reads the one before."""
    graph = Graph("chain")
    value = x = graph.add_input("x", F32)
    for _ in range(length):
        value = graph.insert(ADD, [value, x], types=F32, operands=["self", "other"]).outputs[0]
    graph.set_outputs(value)
    return graph


def fan_out(width: int) -> Graph:
    """Return as many nodes that read one value, and one node that reads them all."""
    graph = Graph("fan")
    x = graph.add_input("x", F32)
    parts = [graph.insert(NEG, [x], types=F32).outputs[0] for _ in range(width)]
    graph.insert(
        "aten.cat.default",
        parts,
        {"_tensor_list_sizes": [width]},
        types=TensorType((2 * width,), torch.float32),
    )
    graph.set_outputs(parts)
    return graph


def many_arguments(count: int) -> Graph:
    """Return a graph with as many parameters, constants, keyword arguments, updates and results."""
    graph = Graph("arguments")
    for index in range(count):
        graph.add_parameter(f"w{index}", F32, aliases=[f"v{index}"])
        graph.add_constant(f"c{index}", torch.zeros(2))
    inputs = {f"x{index}": graph.add_input(f"x{index}", F32) for index in range(count)}
    graph.set_call([], {**inputs, **{f"flag{index}": True for index in range(count)}})
    for index, value in enumerate(inputs.values()):
        graph.set_update(graph.parameters[f"w{index}"], value)
    graph.set_outputs([list(inputs.values()), dict(inputs)])
    return graph


SHAPES = [chain, fan_out, many_arguments]


def calls(function: Callable[[], Any]) -> int:
    """Return how many function calls, of Python and C, ``function`` makes."""
    count = 0

    def counted(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(counted)
    try:
        function()
    finally:
        sys.setprofile(None)
    return count


def erase_all(graph: Graph) -> None:
    graph.set_outputs(())
    for node in reversed(graph.nodes):
        graph.erase(node)


def bypass_all(graph: Graph) -> None:
    for node in graph.nodes:
        graph.replace_all_uses(node.outputs[0], graph.inputs[0])
        graph.erase(node)


def rename_all(graph: Graph) -> None:
    for value in graph.values:
        graph.rename(value, "same")


@pytest.mark.parametrize("work", [
    pytest.param(Graph.check, id="check"),
    pytest.param(str, id="print"),
    pytest.param(lambda graph: parse_ir(str(graph)), id="parse"),
    pytest.param(Graph.clone, id="clone"),
    pytest.param(lambda graph: graph == graph.clone(), id="compare"),
    pytest.param(topological_order, id="sort"),
    pytest.param(lambda graph: graph.subgraph(graph.nodes), id="subgraph"),
    pytest.param(rename_all, id="rename"),
    pytest.param(lambda graph: list(graph.nodes_of(ADD)), id="nodes_of"),
])  # fmt: skip
@pytest.mark.parametrize("shape", SHAPES)
def test_work_on_a_graph_grows_with_its_size(
    shape: Callable[[int], Graph], work: Callable[[Graph], Any]
) -> None:
    work(shape(3))
    small, large = shape(100), shape(400)
    assert calls(lambda: shape(400)) <= 4.4 * calls(lambda: shape(100))

    assert calls(lambda: work(large)) <= 4.4 * calls(lambda: work(small))


def insert_in_the_middle(graph: Graph) -> None:
    for _ in range(10):
        graph.insert(NEG, [graph.inputs[0]], types=F32, before=graph.node("add#50"))


@each_row("work, growth", {
    "erase": (erase_all, 4.4),
    "replace": (bypass_all, 4.4),
    "insert": (insert_in_the_middle, 1.1),  # the garbage collector may run in one
})  # fmt: skip
def test_an_edit_costs_the_same_in_a_large_graph(work: Callable[[Graph], Any], growth: float) -> None:
    small, large = chain(100), chain(400)

    assert calls(lambda: work(large)) <= growth * calls(lambda: work(small))


# Thousands of nodes, and a hundred thousand


@LARGE
def test_a_long_chain_goes_through_everything(size: int) -> None:
    graph = chain(size)

    graph.check()
    text = str(graph)
    again = parse_ir(text)
    assert again == graph
    assert len(text.splitlines()) == size + 6
    assert len(graph.subgraph(graph.nodes)) == size
    bypass_all(again)
    assert len(again) == 0
    again.check()


def test_a_deep_graph_runs() -> None:
    result = execute_ir(chain(5_000), (torch.ones(2),))

    assert torch.equal(result, torch.full((2,), 5_001.0))
