"""Alignment of the values of two graphs, though passes have changed one of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from npu_ir import Graph, extract_ir, load_ir, parse_ir, save_ir
from npu_passes import Pass, PassManager, optimize
from npu_runtime.diagnostics.compare import compare
from npu_runtime.diagnostics.compare.alignment import align
from tests.npu_runtime.diagnostics.compare.cases import graph_of
from tests.support.corpus.case import Holding


def convolutions() -> nn.Module:
    """Return what norms, biases and activations are folded and fused in."""

    def forward(self: Any, x: Tensor) -> Tensor:
        hidden = torch.relu(self.norm(self.conv(x))).flatten(1)
        return self.small(nn.functional.gelu(self.wide(hidden))).softmax(-1)

    layers = {"conv": nn.Conv2d(3, 4, 3), "norm": nn.BatchNorm2d(4), "wide": nn.Linear(4 * 36, 16)}
    return Holding(forward, **layers, small=nn.Linear(16, 4)).eval()


def residual(self: Any, x: Tensor, y: Tensor) -> Tensor:
    """A sum that is normalized, and added to later: fused into one node with two outputs."""
    total = x + y
    return total + self.linear(self.norm(total))


def pairs(left: Graph, right: Graph) -> dict[str, str]:
    return {pair.left.name: pair.right.name for pair in align(left, right)}


@pytest.mark.parametrize(("pipeline", "count"), [("minimal", 8), ("default", 7), ("fuse", 6)])
def test_a_graph_aligns_with_what_passes_make_of_it(pipeline: str, count: int) -> None:
    model, x = convolutions(), torch.randn(2, 3, 8, 8)
    graph = extract_ir(model, (x,))
    assert len(graph) == 8

    found = compare(graph, optimize(graph, pipeline), (x,), weights=model.state_dict())

    assert found.ok, str(found)
    assert len(found.values) == count


def test_a_fused_node_stands_for_the_last_of_those_it_replaces() -> None:
    graph = extract_ir(convolutions(), (torch.randn(2, 3, 8, 8),))
    fused = optimize(graph, "fuse")

    found = pairs(graph, fused)

    assert found["gelu"] == "linear_activation"
    assert fused.value(found["batch_norm"]).producer.op_type == "aten.conv2d.default"  # type: ignore[union-attr]
    assert "linear" not in found
    assert pairs(fused, graph)[found["batch_norm"]] == "batch_norm"


def test_each_output_of_a_fused_node_stands_for_the_value_that_it_replaces() -> None:
    graph = extract_ir(
        Holding(residual, norm=nn.LayerNorm(8), linear=nn.Linear(8, 8)),
        (torch.randn(2, 8), torch.randn(2, 8)),
    )
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


def test_a_node_that_a_pass_made_anew_stands_for_the_old_one() -> None:
    graph = graph_of(lambda x: (x.relu() * 2).sin().relu(), torch.randn(4))
    changed = PassManager([Anew]).run(graph).graph
    assert {"relu#1", "relu_1#1"} <= {node.name for node in changed.nodes}

    found = pairs(graph, changed)

    assert found == {"relu": "relu#1", "mul": "mul", "sin": "sin", "relu_1": "relu_1#1"}


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


def test_a_value_that_stands_for_several_is_the_counterpart_of_each() -> None:
    graph = graph_of(lambda x: x.sin().mul(1).exp(), torch.randn(4))
    changed = PassManager("elim-identity").run(graph).graph
    assert not list(changed.nodes_of("aten.mul.Tensor"))

    found = [(pair.left.name, pair.right.name) for pair in align(graph, changed)]
    turned = [(pair.left.name, pair.right.name) for pair in align(changed, graph)]

    assert found == [("sin", "sin"), ("mul", "sin"), ("exp", "exp")]
    assert turned == [("sin", "sin"), ("sin", "mul"), ("exp", "exp")]


def test_two_graphs_that_passes_made_of_one_align_by_what_it_was() -> None:
    graph = extract_ir(convolutions(), (torch.randn(2, 3, 8, 8),))

    found = pairs(optimize(graph, "fuse"), PassManager("conv-bn-folding,decompose").run(graph).graph)

    assert {"linear_activation", "conv2d#1"} <= found.keys()


def test_values_of_the_same_name_from_other_places_of_the_model_do_not_align() -> None:
    class First(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.sin().exp()

    class Second(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            y = x.cos()
            return y.sin().exp()

    left, right = (extract_ir(model(), (torch.ones(4),)) for model in (First, Second))
    anew = PassManager([Again]).run(right).graph

    assert pairs(left, right) == {}
    assert pairs(left, anew) == {}
    assert pairs(right, anew) == {"cos": "cos", "sin": "sin#1", "exp": "exp"}


class Again(Pass):
    """Make ``sin`` again, without saying where it is from."""

    name = "again"
    is_idempotent = True

    def run(self, graph: Graph) -> bool:
        found = [node for node in graph.nodes_of("aten.sin.default") if "#" not in node.name]
        for node in found:
            made = graph.insert(
                node.op_type, node.inputs, types=node.outputs[0].type, operands=["self"], name=node.name
            )
            graph.replace_all_uses(node.outputs[0], made.outputs[0])
        graph.sort()
        return bool(found)


def test_in_text_form_what_reads_another_value_is_another() -> None:
    """The names that are left do not tell what passes have made of a graph."""
    graph = graph_of(lambda x: (x.relu() + 1).exp().relu(), torch.randn(4))
    text = str(graph).replace("%exp", "%other")
    assert pairs(graph, parse_ir(str(graph))) == {name: name for name in ("relu", "add", "exp", "relu_1")}

    assert pairs(graph, parse_ir(text)) == {"relu": "relu", "add": "add"}
    assert pairs(parse_ir(text), graph) == {"relu": "relu", "add": "add"}


def test_files_keep_which_values_are_the_same(tmp_path: Path) -> None:
    graph = extract_ir(convolutions(), (torch.randn(2, 3, 8, 8),))
    fused = optimize(graph, "fuse")
    save_ir(fused, tmp_path / "fused.json")
    save_ir(graph, tmp_path / "graph.json")

    assert pairs(graph, load_ir(tmp_path / "fused.json")) == pairs(graph, fused)
    assert pairs(load_ir(tmp_path / "graph.json"), load_ir(tmp_path / "fused.json")) == pairs(graph, fused)
