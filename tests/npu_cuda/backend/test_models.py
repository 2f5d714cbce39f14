"""Whole models: native where there are kernels, ATen elsewhere, with the results of PyTorch."""

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from npu_ir import Graph, extract_ir, save_ir
from npu_ir.cli import main
from npu_ir.plugins.backend import Backend
from npu_runtime import IRExecutor
from npu_runtime.diagnostics.explain import explain, explain_graph
from tests.support.backends.native_backends import HOST, NATIVE_BACKENDS


class ResidualBlock(nn.Module):
    def __init__(self, channels: int = 4) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(channels)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.second(torch.relu(self.norm(self.first(x)))) + x)


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(7, 33), nn.ReLU(), nn.Linear(33, 33), nn.ReLU(), nn.Linear(33, 3))


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "mlp": (mlp, (5, 7)),
    "residual": (ResidualBlock, (2, 4, 9, 7)),
}


def made(name: str, backend: Backend = HOST) -> tuple[nn.Module, Tensor, Graph]:
    torch.manual_seed(0)
    make, shape = MODELS[name]
    (device, *_) = backend.devices()
    model, x = make().eval().to(device), torch.randn(shape, device=device)
    return model, x, extract_ir(model, (x,))


@pytest.mark.parametrize("backend", NATIVE_BACKENDS)
@pytest.mark.parametrize("passes", [None, "default"])
@pytest.mark.parametrize("name", MODELS)
def test_a_model_computes_what_it_does_in_pytorch(name: str, passes: str | None, backend: Backend) -> None:
    model, x, graph = made(name, backend)
    executor = IRExecutor(graph, model.state_dict(), backend=backend, passes=passes)

    for factor in (1.0, -0.5):
        torch.testing.assert_close(executor(factor * x), model(factor * x), rtol=1e-5, atol=1e-5)
    assert explain(executor).totals[backend.name].count > 0


def test_explain_names_kernels_and_reasons() -> None:
    _, _, graph = made("residual")
    mlp_nodes = explain_graph(made("mlp")[2], HOST).nodes

    explained = {node.name: node for node in explain_graph(graph, HOST).nodes}

    native = Counter(node.op_type for node in explained.values() if node.backend == "host")
    assert native == {
        "aten.conv2d.default": 2, "aten.relu.default": 2, "aten.add.Tensor": 1, "aten.batch_norm.default": 1,
    }  # fmt: skip
    assert explained["relu"].kernel == explained["batch_norm"].kernel == "batch_norm_fwd.f32.host"
    assert explained["add"].kernel == explained["relu_1"].kernel == "fused.host"
    assert explained["relu"].reasons == {"aten": "host is preferred, and takes it"}
    assert explained["conv2d"].kernel == "conv.host"
    kernels = [[kernel.split(".")[0] for kernel in node.kernel.split(", ")] for node in mlp_nodes]
    assert kernels == [["gemm"], ["relu"], ["gemm"], ["relu"], ["gemm"]]


def test_channels_last_tensors_are_added_and_rectified() -> None:
    model, x = ResidualBlock().eval().to(memory_format=torch.channels_last), torch.randn(2, 4, 9, 7)
    x = x.to(memory_format=torch.channels_last)
    executor = IRExecutor(extract_ir(model, (x,)), model.state_dict(), backend="host", passes=None)

    found = executor(x)

    torch.testing.assert_close(found, model(x), rtol=1e-5, atol=1e-5)
    assert found.is_contiguous(memory_format=torch.channels_last)
    assert explain(executor).totals["host"].count == 6


@pytest.mark.parametrize("backend", NATIVE_BACKENDS)
def test_many_threads_run_one_executor(backend: Backend) -> None:
    model, x, graph = made("residual", backend)
    executor = IRExecutor(graph, model.state_dict(), backend=backend)
    inputs = [x + index for index in range(8)] * 4

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(executor, inputs))

    for item, result in zip(inputs, found, strict=True):
        torch.testing.assert_close(result, model(item), rtol=1e-5, atol=1e-5)


def test_native_ops_alone_are_one_program_that_takes_other_weights() -> None:
    model, x, graph = made("mlp")
    executor = IRExecutor(graph, model.state_dict(), backend="host", passes=None)
    other = mlp().eval()

    executor.load_state_dict(other.state_dict())

    (step,) = executor.instructions
    assert (step.backend, len(step.nodes)) == ("host", 5)
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
    assert ("gemm." in printed) or f"no {name} kernel of" in printed
