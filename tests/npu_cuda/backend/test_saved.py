"""Executors of the backend ``host`` as files: kernels and packed weights."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from npu_ir import extract_ir
from npu_runtime import IRExecutor, explain, tune


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 64, 3, padding=1), nn.BatchNorm2d(64)
        self.deep, self.head = nn.Conv2d(64, 64, 3, padding=1), nn.Linear(64, 50)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.norm(self.conv(x)))
        return self.head(torch.relu(self.deep(x)).mean((2, 3)))


@pytest.fixture
def executor() -> IRExecutor:
    torch.manual_seed(0)
    model = Net().eval()
    return IRExecutor(extract_ir(model, (torch.rand(2, 3, 16, 16),)), model.state_dict())


def test_packed_weights_and_kernels_are_those_of_the_file(executor: IRExecutor, tmp_path: Path) -> None:
    x = torch.rand(2, 3, 16, 16)

    executor.save(tmp_path / "net.npu")

    loaded = IRExecutor.load(tmp_path / "net.npu")
    assert torch.equal(loaded(x), executor(x))
    nodes = {node.op_type for node in loaded.graph.nodes}
    assert {"npu.packed_conv2d.default", "npu.packed_linear.default"} & nodes
    assert "npu.pack_matrix.default" not in nodes
    assert [node.kernel for node in explain(loaded).nodes] == [
        node.kernel for node in explain(executor).nodes
    ]
    assert all(tensor.data_ptr() % 64 == 0 for tensor in loaded.weights().values() if tensor.numel() > 64)


def test_products_are_measured_packed_and_as_they_are() -> None:
    model = nn.Linear(64, 50).eval()
    graph = extract_ir(model, (torch.rand(4, 64),))

    costs = tune(graph, model.state_dict(), (torch.rand(4, 64),), repeat=1)

    measured = {signature.partition("(")[0]: seconds for signature, seconds in costs.seconds.items()}
    assert set(measured) == {"npu.packed_linear.default", "aten.linear.default"}
    assert all(set(seconds) == {"host", "aten"} for seconds in measured.values())
    assert costs.passes in ("host", "cpu")
