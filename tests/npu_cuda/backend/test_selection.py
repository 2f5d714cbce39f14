"""Selection of native ops: once per node of an executor, and never for a graph that has been edited since."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from npu_cuda.backend import HostBackend, selection
from npu_cuda.backend.native import PricedHostBackend
from npu_ir import Graph, OpNode, parse_ir
from npu_ir.plugins.backend import Temporary
from npu_runtime import IRExecutor
from npu_runtime.backends.partition import extract_partition

NORM_AND_GELU = """
graph g {
  input %x: f32[4, 8]
  param %w: f32[8]
  %n: f32[4, 8] = aten.layer_norm.default(input=%x, weight=%w) {normalized_shape=[8]}
  %t: f32[8, 4]@[1, 8] = aten.permute.default(self=%n) {dims=[1, 0]}
  %y: f32[8, 4]@[1, 8] = aten.relu.default(self=%t)
  return %y
}
"""


class Counted:
    """`select_ops`, with the nodes that it was asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.nodes: list[str] = []
        select = selection.select_ops

        def counting(node: OpNode, device: str) -> Any:
            self.nodes.append(node.name)
            return select(node, device)

        monkeypatch.setattr(selection, "select_ops", counting)


@pytest.mark.smoke
def test_an_executor_selects_the_ops_of_each_node_once(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(monkeypatch)

    executor = IRExecutor(parse_ir(NORM_AND_GELU), {"w": torch.rand(8)}, backend="auto", passes=None)

    assert sorted(counted.nodes) == sorted(node.name for node in executor.graph.nodes)


def test_a_graph_that_was_edited_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(monkeypatch)
    graph, backend = parse_ir(NORM_AND_GELU), PricedHostBackend()
    node = graph.node("n")
    assert backend.supports(node) is None

    graph.set_attrs(node, {"normalized_shape": [8], "eps": 0.5})
    (first, *_) = backend.lower(extract_partition([node], "p")[0])

    assert counted.nodes == ["n", "n"]
    (expected, *_) = HostBackend().lower(extract_partition([node], "p")[0])
    assert first.attrs == expected.attrs


def test_lowering_of_a_copy_names_its_values_and_shares_no_temporaries() -> None:
    graph, backend = parse_ir(NORM_AND_GELU), PricedHostBackend()
    for node in graph.nodes:
        assert backend.supports(node) is None
    first, second = (extract_partition(graph.nodes, name)[0] for name in ("first", "second"))

    lowered = [backend.lower(first), backend.lower(second)]

    for ops, part in zip(lowered, (first, second), strict=True):
        assert {node for op in ops for node in op.nodes} == set(part.nodes)
        operands = [item for op in ops for item in (*op.inputs, *op.outputs)]
        own = {*part.values, *(item for item in operands if isinstance(item, Temporary))}
        assert own.issuperset(operands)
    made = [{item for op in ops for item in op.outputs if isinstance(item, Temporary)} for ops in lowered]
    assert made[0]
    assert made[0].isdisjoint(made[1])


def test_ops_that_were_selected_before_are_those_of_a_plain_lowering() -> None:
    graph, priced = parse_ir(NORM_AND_GELU), PricedHostBackend()
    for node in graph.nodes:
        priced.supports(node)

    found = priced.lower(extract_partition(graph.nodes, "p")[0])

    expected = HostBackend().lower(extract_partition(graph.nodes, "p")[0])
    assert [(op.kind, op.kernel, op.schema_id, op.attrs) for op in found] == [
        (op.kind, op.kernel, op.schema_id, op.attrs) for op in expected
    ]


def test_nodes_of_another_graph_are_selected_anew() -> None:
    backend = PricedHostBackend()
    fits, refused = (graph_of_cast(dtype) for dtype in ("f32", "c64"))

    answers = [backend.supports(graph.nodes[0]) for graph in (fits, refused, fits)]

    assert answers[0] is None
    assert answers[1] is not None
    assert answers[2] is None


def graph_of_cast(dtype: str) -> Graph:
    return parse_ir(
        f"graph g {{\n input %x: {dtype}[3]\n %y: {dtype}[3] = aten.neg.default(self=%x)\n return %y\n}}"
    )
