"""The pipeline `cpu` makes whole models faster, and nothing else of them."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from npu_ir import Graph, load_ir, save_ir
from npu_passes import PassManager, all_passes, all_pipelines, optimize, passes_of
from npu_passes.core.registry import origin_of
from npu_runtime import IRExecutor
from npu_runtime.cpu import onednn
from tests.support.corpus.case import Holding
from tests.support.passes.cpu_cases import assert_computes, captured, image, last, ops, refusals

CPU_ONLY = ["channels-last", "winograd", "pack-convolution", "pack-linear"]


class Block(nn.Module):
    def __init__(self, channels: int, out: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Sequential(
            nn.Conv2d(channels, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out), nn.ReLU()
        )
        self.second = nn.Sequential(nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out))
        same = stride == 1 and channels == out
        self.short = nn.Identity() if same else nn.Conv2d(channels, out, 1, stride)

    def forward(self, x: Tensor) -> Any:
        return F.relu(self.second(self.first(x)) + self.short(x))


class SmallResNet(nn.Module):
    """A stem, pools, residual blocks and a head, in sizes that the passes are for."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 7, 2, 3), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
        )
        self.blocks = nn.Sequential(Block(width, width, 1), Block(width, 2 * width, 2))
        self.head = nn.Linear(2 * width, 10)

    def forward(self, x: Tensor) -> Any:
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


MODELS: list[Any] = [
    pytest.param(SmallResNet, image(3, 112), id="resnet"),
    pytest.param(lambda: nn.Sequential(nn.Linear(256, 1024), nn.GELU("tanh"), nn.Linear(1024, 256)),
        torch.randn(128, 256), id="mlp"),
]  # fmt: skip


def trained(model: nn.Module) -> nn.Module:
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.running_mean, -0.5, 0.5)  # type: ignore[arg-type]
            nn.init.uniform_(module.running_var, 0.5, 2.0)  # type: ignore[arg-type]
    return model.eval()


def cpu(model: nn.Module, x: Tensor) -> Graph:
    return optimize(captured(model, x), "cpu")


def test_the_pipeline_is_the_default_with_passes_of_this_plugin_behind_it() -> None:
    found = [item.name for item in passes_of("cpu")]

    assert found == [*(item.name for item in passes_of("default")), *CPU_ONLY]
    assert all_pipelines()["cpu"].doc
    assert {origin_of(name).partition(" ")[0] for name in CPU_ONLY} == {"npu-runtime-cpu"}
    assert {all_passes()[name].numerics.rtol for name in CPU_ONLY} == {1e-5}


@pytest.mark.parametrize(("make", "x"), MODELS)
def test_models_in_other_dtypes_get_no_op_of_onednn(make: Any, x: Tensor) -> None:
    model = trained(make()).double()

    graph = cpu(model, x.double())

    assert not [name for name in ops(graph) if name.startswith("mkldnn")]
    assert_computes(graph, model, x.double())


@pytest.mark.parametrize(("make", "x"), MODELS)
def test_a_second_time_changes_nothing(make: Any, x: Tensor) -> None:
    graph = cpu(trained(make()), x)

    assert optimize(graph, "cpu") == graph


@pytest.mark.parametrize(("make", "x"), MODELS)
def test_optimized_models_are_saved_loaded_and_given_new_weights(make: Any, x: Tensor, tmp_path: Any) -> None:
    graph = cpu(trained(make()), x)
    other = trained(make())

    save_ir(graph, tmp_path / "graph")
    loaded = load_ir(tmp_path / "graph")

    assert loaded == graph
    assert_computes(loaded, other, x, weights=other.state_dict())


@pytest.mark.parametrize(("make", "x"), MODELS)
def test_the_executor_packs_weights_once_and_new_ones_again(make: Any, x: Tensor) -> None:
    model, other = trained(make()), trained(make())
    executor = IRExecutor(captured(model, x), model.state_dict(), passes="cpu")

    first, again = executor(x), executor(x)
    executor.load_state_dict(other.state_dict())

    with torch.no_grad():
        assert torch.equal(first, again)
        torch.testing.assert_close(first, model(x), rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(executor(x), other(x), rtol=1e-4, atol=1e-4)


def test_the_executor_knows_the_memory_of_packed_convolutions_and_overwrites_it() -> None:
    model, x = trained(SmallResNet()), image(3, 112)

    packed = IRExecutor(captured(model, x), model.state_dict(), passes="cpu")
    plain = IRExecutor(captured(model, x), model.state_dict(), passes=None)

    assert any(step.overwrites is not None for step in packed.instructions)
    assert 0 < packed.memory_plan().peak_bytes <= plain.memory_plan().peak_bytes


def test_branches_are_left_as_they_are() -> None:
    model = Holding(
        lambda self, x: torch.cond(
            x.sum() > 0, lambda y: F.relu(self.linear(y)), lambda y: -self.linear(y), (x,)
        ),
        linear=nn.Linear(512, 512),
    )
    x = torch.randn(64, 512)

    result = PassManager(",".join(CPU_ONLY)).run(captured(model, x))

    assert {item.reason for item in result.journal.refusals} == {
        "it is in a region: a program has a prologue"
    }
    assert_computes(result.graph, model, x)


def test_a_small_resnet_has_one_copy_and_no_convolution_left_alone() -> None:
    graph = cpu(trained(SmallResNet()), image(3, 112))

    found = ops(graph)
    assert found["clone"] == 1
    assert found["conv2d"] == 0
    assert found["bmm"] + found["mkldnn._convolution_pointwise"] == 6


def test_an_mlp_of_small_layers_stays_as_it_is() -> None:
    model = nn.Sequential(*[layer for _ in range(16) for layer in (nn.Linear(64, 64), nn.ReLU())])

    assert cpu(model, torch.randn(64, 64)) == optimize(captured(model, torch.randn(64, 64)))


@pytest.mark.parametrize(("passes", "model", "x"), [
    ("channels-last", nn.Conv2d(64, 64, 3), image(64, 56)),
    ("pack-convolution", nn.Conv2d(64, 64, 3), last(image(64, 56))),
    ("winograd", nn.Conv2d(64, 64, 3), last(image(64, 56))),
    ("pack-linear", nn.Linear(256, 512), torch.randn(128, 256)),
])  # fmt: skip
def test_without_onednn_the_reason_is_given(
    passes: str, model: nn.Module, x: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onednn, "unavailable_reason", lambda: "PyTorch is built without oneDNN")

    assert [item.reason for item in refusals(model, x, passes=passes)] == ["PyTorch is built without oneDNN"]
