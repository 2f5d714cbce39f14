"""Tests of the ops, the pass and the pipeline."""

from __future__ import annotations

import torch
from npu_ir import Graph, extract_ir, verify_ir
from npu_passes import PassManager, optimize
from npu_passes.testing import PassContract

from npu_plugin_example import add_relu, rescale_bits
from npu_plugin_example.fuse_add_relu import FuseAddRelu


class Residual(torch.nn.Module):
    """``relu(linear(x) + x)``, then the ops of this plugin."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.linear(x) + x)
        return rescale_bits(add_relu(y, x), 3)


class SharedSum(torch.nn.Module):
    """A sum that both a relu and a product read."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        total = x + y
        return torch.relu(total) * total


def residual_graph() -> Graph:
    return extract_ir(Residual(), (torch.randn(2, 4),))


def shared_graph() -> Graph:
    return extract_ir(SharedSum(), (torch.randn(3), torch.randn(3)))


def ops(graph: Graph) -> list[str]:
    return [node.op_type for node in graph.nodes]


class TestFuseAddRelu(PassContract):
    """All that passes promise, on these graphs, samples of PyTorch's ops and random graphs."""

    passes = (FuseAddRelu, FuseAddRelu(min_elements=8))

    def graphs(self) -> list[Graph]:
        return [residual_graph(), shared_graph()]


def test_a_graph_of_the_ops_computes_what_the_model_computes() -> None:
    model, x = Residual(), torch.randn(2, 4)
    graph = extract_ir(model, (x,))

    assert ops(graph)[-2:] == ["npu_plugin_example.add_relu.default", "npu_plugin_example.rescale"]
    assert verify_ir(graph, model, (x,)).ok


def test_the_pipeline_fuses_sums() -> None:
    residual = residual_graph()

    graph = optimize(residual, "npu-plugin-example")

    assert "aten.relu.default" in ops(residual)
    assert "aten.relu.default" not in ops(graph)
    assert ops(graph).count("npu_plugin_example.add_relu.default") == 2


def test_a_sum_that_is_read_elsewhere_stays() -> None:
    shared = shared_graph()

    result = PassManager([FuseAddRelu]).run(shared)

    assert result.graph == shared
    assert [str(refusal.reason) for refusal in result.journal.refusals] == [
        "%add is read elsewhere, too"
    ]
