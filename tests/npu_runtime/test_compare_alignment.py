"""Which values of two graphs are the same, though passes have changed one of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from npu_ir import Graph, Provenance, TensorType, extract_ir
from npu_passes import Pass, PassManager, optimize
from npu_runtime.comparing import compare
from npu_runtime.comparing.alignment import align

F32 = TensorType((4,), torch.float32)


class Convolutions(nn.Module):
    """What norms, biases and activations are folded and fused in."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
        self.wide, self.small = nn.Linear(4 * 36, 16), nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.relu(self.norm(self.conv(x))).flatten(1)
        return self.small(nn.functional.gelu(self.wide(hidden))).softmax(-1)


class Residual(nn.Module):
    """A sum that is normalized, and added to later: fused into one node with two outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(8), nn.Linear(8, 8)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        total = x + y
        return total + self.linear(self.norm(total))


def pairs(left: Graph, right: Graph) -> dict[str, str]:
    return {pair.left.name: pair.right.name for pair in align(left, right)}


def graph_of(function: Callable[..., Any], *args: Any) -> Graph:
    class Function(nn.Module):
        def forward(self, *args: Any) -> Any:
            return function(*args)

    return extract_ir(Function(), args)


@pytest.mark.parametrize(("pipeline", "count"), [("minimal", 8), ("default", 7), ("fuse", 6)])
def test_a_graph_aligns_with_what_passes_make_of_it(pipeline: str, count: int) -> None:
    model, x = Convolutions().eval(), torch.randn(2, 3, 8, 8)
    graph = extract_ir(model, (x,))
    assert len(graph) == 8

    found = compare(graph, optimize(graph, pipeline), (x,), weights=model.state_dict())

    assert found.ok, str(found)
    assert len(found.values) == count


def test_a_fused_node_stands_for_the_last_that_it_was_fused_from() -> None:
    graph = extract_ir(Convolutions().eval(), (torch.randn(2, 3, 8, 8),))
    fused = optimize(graph, "fuse")

    found = pairs(graph, fused)

    assert found["gelu"] == "linear_activation"
    assert fused.value(found["batch_norm"]).producer.op_type == "aten.conv2d.default"  # type: ignore[union-attr]
    assert "linear" not in found
    assert pairs(fused, graph)[found["batch_norm"]] == "batch_norm"


def test_an_output_of_a_fused_node_is_found_by_what_reads_it() -> None:
    graph = extract_ir(Residual(), (torch.randn(2, 8), torch.randn(2, 8)))
    fused = optimize(graph, "fuse")
    assert any(node.op_type == "npu.add_layer_norm.default" for node in fused.nodes)

    found = pairs(graph, fused)

    assert found == {
        "add": "add_layer_norm.1",
        "layer_norm": "add_layer_norm.0",
        "linear": "linear",
        "add_1": "add_1",
    }


class Anew(Pass):
    """Make ``relu`` anew, then fuse what was made with the node behind it."""

    name = "anew"

    def run(self, graph: Graph) -> bool:
        found = [node for node in graph.nodes_of("aten.relu.default") if "#" not in node.name]
        for node in found:
            with self.rewrite(graph, "anew", node) as edit:
                edit.replace(node.outputs[0], edit.call(node.op_type, *node.inputs, name=node.name))
        return bool(found)


def test_a_node_that_a_pass_made_anew_is_found_by_its_old_name() -> None:
    graph = graph_of(lambda x: (x.relu() * 2).sin().relu(), torch.randn(4))
    changed = PassManager([Anew]).run(graph).graph
    assert {"relu#1", "relu_1#1"} <= {node.name for node in changed.nodes}

    found = pairs(graph, changed)

    assert found == {"relu": "relu#1", "mul": "mul", "sin": "sin", "relu_1": "relu_1#1"}


def test_a_node_may_be_fused_from_one_that_was_made_anew() -> None:
    graph = graph_of(lambda x: (x + 1).relu(), torch.randn(4))
    fused = Graph("fused")
    x = fused.add_input("x", F32)
    provenance = Provenance(fused_from=("add", "relu#1"))
    node = fused.insert("mylib.add_relu.default", [x], types=F32, provenance=provenance)
    fused.set_outputs((x, node.outputs[0]))  # in another place, so that this does not align them

    assert pairs(graph, fused) == {"relu": "add_relu"}


def test_what_one_node_was_taken_apart_into_ends_in_its_value() -> None:
    graph = graph_of(lambda x: x.exp().softmax(-1).sin(), torch.randn(4))
    parts = PassManager("decompose").run(graph).graph
    assert not list(parts.nodes_of("aten.softmax.int"))

    found = pairs(graph, parts)

    assert found.keys() == {"exp", "softmax", "sin"}
    assert parts.value(found["softmax"]).users == (parts.node("sin"),)


def test_two_values_may_be_one_after_passes() -> None:
    graph = graph_of(lambda x: x.sin().exp() + x.sin().cos(), torch.randn(4))

    found = pairs(graph, PassManager("cse").run(graph).graph)

    assert found == {name: name for name in ("sin", "exp", "cos", "add")} | {"sin_1": "sin"}


def test_a_node_with_the_name_of_one_that_is_gone_is_another() -> None:
    class Reuse(Pass):
        """Put ``sin`` in place of ``exp``, under the name of the ``sin`` that is gone."""

        name = "reuse"

        def run(self, graph: Graph) -> bool:
            for node in list(graph.nodes_of("aten.exp.default")):
                first = node.inputs[0].producer
                assert first is not None
                graph.replace_all_uses(first.outputs[0], first.inputs[0])
                graph.erase(first)
                with self.rewrite(graph, "reuse", node) as edit:
                    edit.replace(node.outputs[0], edit.call("aten.sin.default", *node.inputs, name="sin"))
                return True
            return False

    class TwoLines(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            first = x.sin()
            return first.exp().cos()

    graph = extract_ir(TwoLines(), (torch.randn(4),))
    changed = PassManager([Reuse]).run(graph).graph
    assert "sin" in {node.name for node in changed.nodes}

    found = pairs(graph, changed)

    assert found == {"exp": "sin", "cos": "cos"}


def test_graphs_of_nothing_in_common_share_what_they_return() -> None:
    def single(name: str, op_type: str) -> Graph:
        graph = Graph(name)
        x = graph.add_input("x", F32)
        node = graph.insert(op_type, [x], types=F32, name=name)
        last = graph.insert(op_type, node.outputs, types=F32, name=f"{name}_end")
        graph.set_outputs(last.outputs[0])
        return graph

    assert pairs(single("a", "aten.sin.default"), single("b", "aten.cos.default")) == {"a_end": "b_end"}


def test_pairs_are_in_the_order_of_the_left_graph() -> None:
    graph = extract_ir(Convolutions().eval(), (torch.randn(2, 3, 8, 8),))

    orders = [pair.order for pair in align(graph, optimize(graph, "fuse"))]

    assert orders == sorted(orders)
    assert len(set(orders)) == len(orders)
