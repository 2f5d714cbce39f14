"""Whole models: native where there are kernels, ATen elsewhere, with the results of PyTorch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from npu_cuda.backend import CudaBackend, HostBackend
from npu_ir import Graph, extract_ir, save_ir
from npu_ir.cli import main
from npu_ir.plugins.backend import Backend
from npu_runtime import IRExecutor
from npu_runtime.diagnostics.explain import explain, explain_graph

BACKENDS = [
    pytest.param(
        backend, id=backend.name, marks=pytest.mark.skipif(not backend.devices(), reason=backend.absence())
    )
    for backend in (HostBackend(), CudaBackend())
]  # fmt: skip


class ResidualBlock(nn.Module):
    def __init__(self, channels: int = 4) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(channels)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.second(torch.relu(self.norm(self.first(x)))) + x)


class TransformerBlock(nn.Module):
    def __init__(self, width: int = 16, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.ReLU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        parts = self.qkv(self.norm(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        attended = nn.functional.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(x)


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(7, 33), nn.ReLU(), nn.Linear(33, 33), nn.ReLU(), nn.Linear(33, 3))


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "mlp": (mlp, (5, 7)),
    "residual": (ResidualBlock, (2, 4, 9, 7)),
    "transformer": (TransformerBlock, (2, 6, 16)),
}


def made(name: str) -> tuple[nn.Module, Tensor, Graph]:
    torch.manual_seed(0)
    make, shape = MODELS[name]
    model, x = make().eval(), torch.randn(shape)
    return model, x, extract_ir(model, (x,))


def executor_of(model: nn.Module, graph: Graph, backend: Backend, passes: Any = None) -> IRExecutor:
    return IRExecutor(graph, model.state_dict(), backend=backend, passes=passes)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("passes", [None, "default"])
@pytest.mark.parametrize("name", MODELS)
def test_a_model_computes_what_it_does_in_pytorch(name: str, passes: str | None, backend: Backend) -> None:
    model, x, graph = made(name)
    executor = executor_of(model, graph, backend, passes)

    for factor in (1.0, -0.5):
        torch.testing.assert_close(executor(factor * x), model(factor * x), rtol=1e-5, atol=1e-5)
    assert explain(executor).totals[backend.name].count > 0


@pytest.mark.parametrize(
    ("name", "native"),
    [
        pytest.param("mlp", {"aten.linear.default": 3, "aten.relu.default": 2}, id="mlp"),
        pytest.param("residual", {"aten.relu.default": 2, "aten.add.Tensor": 1}, id="residual"),
        pytest.param(
            "transformer",
            {"aten.linear.default": 4, "aten.relu.default": 1, "aten.add.Tensor": 2},
            id="transformer",
        ),
    ],
)
def test_what_there_are_kernels_for_runs_native(name: str, native: dict[str, int]) -> None:
    _, _, graph = made(name)

    explained = explain_graph(graph, HostBackend())

    assert Counter(node.op_type for node in explained.nodes if node.backend == "host") == native


def test_a_model_of_native_ops_alone_is_one_program() -> None:
    model, _, graph = made("mlp")

    (step,) = executor_of(model, graph, HostBackend()).instructions

    assert (step.backend, len(step.nodes)) == ("host", 5)


def test_explain_names_kernels_and_reasons() -> None:
    _, _, graph = made("residual")

    explained = {node.name: node for node in explain_graph(graph, HostBackend()).nodes}

    assert explained["add"].kernel.startswith("add.f32.host")
    assert explained["relu"].reasons == {"aten": "host is preferred, and takes it"}
    assert explained["conv2d"].reasons == {"host": "no native op for aten.conv2d.default"}


def test_a_linear_layer_with_a_bias_is_two_kernels() -> None:
    _, _, graph = made("mlp")

    kernels = explain_graph(graph, HostBackend()).nodes[0].kernel.split(", ")

    assert [kernel.partition(".")[0] for kernel in kernels] == ["copy", "gemm"]


def test_channels_last_tensors_are_added_and_rectified() -> None:
    model, x = ResidualBlock().eval().to(memory_format=torch.channels_last), torch.randn(2, 4, 9, 7)
    x = x.to(memory_format=torch.channels_last)
    executor = executor_of(model, extract_ir(model, (x,)), HostBackend())

    found = executor(x)

    torch.testing.assert_close(found, model(x), rtol=1e-5, atol=1e-5)
    assert found.is_contiguous(memory_format=torch.channels_last)
    assert explain(executor).totals["host"].count == 3


@pytest.mark.parametrize("backend", BACKENDS)
def test_many_threads_run_one_executor(backend: Backend) -> None:
    model, x, graph = made("transformer")
    executor = executor_of(model, graph, backend)
    inputs = [x + index for index in range(8)]

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(executor, inputs * 4))

    with torch.no_grad():
        for item, result in zip(inputs * 4, found, strict=True):
            torch.testing.assert_close(result, model(item), rtol=1e-5, atol=1e-5)


def test_other_weights_need_no_other_program() -> None:
    model, x, graph = made("mlp")
    executor = executor_of(model, graph, HostBackend())
    other = mlp().eval()

    executor.load_state_dict(other.state_dict())

    torch.testing.assert_close(executor(x), other(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["host", "cuda"])
def test_the_command_explains_a_saved_graph(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, _, graph = made("mlp")
    save_ir(graph, tmp_path / "net.json")

    code = main(["explain", str(tmp_path / "net.json"), "--backend", name])

    printed = capsys.readouterr().out
    assert code == 0
    assert f"asked: {name}, aten" in printed
    assert ("gemm.f32." + name in printed) or f"no {name} kernel of" in printed
