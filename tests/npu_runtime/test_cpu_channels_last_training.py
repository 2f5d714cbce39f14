"""In a training step, norms, pools and gradients work in channels-last where that saves more than the copies cost."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from npu_ir import Graph, Interpreter, TensorType
from npu_passes import PassManager
from npu_passes.checking import Checked
from npu_passes.testing import check_pass
from npu_runtime import TrainStep
from npu_runtime.backends.registry import backends_of
from npu_runtime.choosing import passes_on
from npu_runtime.cpu.channels_last import ChannelsLast
from npu_runtime.training import compile_ir
from tests.npu_runtime.training.cases import Case
from tests.npu_runtime.training.eager import State, full_state, trained
from tests.npu_runtime.training.judging import problems, reference
from tests.npu_runtime.training.optimizers import recipe_named
from tests.npu_runtime.training.tiny_backend import TinyBackend

CPU = torch.device("cpu")
RATE = {
    "hyperparameters": {
        "group0.lr": 0.5,
        "group0.momentum": 0,
        "group0.dampening": 0,
        "group0.weight_decay": 0,
    }
}


class Classifier(nn.Module):
    """Two convolutions, and between them what images go through in training.

    Args:
        channels: Of the second convolution; the first has half of them.
        pool: Of 2 x 2.
    """

    def __init__(self, channels: int = 24, pool: nn.Module | None = None) -> None:
        super().__init__()
        half = channels // 2
        self.features = nn.Sequential(
            nn.Conv2d(3, half, 3, padding=1, bias=False),
            nn.BatchNorm2d(half),
            nn.ReLU(),
            pool or nn.MaxPool2d(2),
            nn.Conv2d(half, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
        )
        self.head = nn.Linear(channels, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x))  # type: ignore[no-any-return]


def step_of(model: nn.Module, batch: tuple[Any, ...]) -> Graph:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    graph = compile_ir(model, optimizer, F.cross_entropy, batch)
    return PassManager.of_pipeline("minimal").run(graph).graph


def batch_of(count: int = 8, size: int = 16) -> tuple[Tensor, Tensor]:
    return torch.randn(count, 3, size, size), torch.randint(0, 10, (count,))


def moved(graph: Graph, *, batch_norms: bool = True) -> Graph:
    return PassManager([ChannelsLast(batch_norms=batch_norms)]).run(graph).graph


def layouts(graph: Graph) -> dict[str, list[str]]:
    """Return, by op, the layouts of what makes images of many channels."""
    found: dict[str, list[str]] = {}
    for node in graph.body:
        type = node.outputs[0].type
        if isinstance(type, TensorType) and type.rank == 4 and type.sizes[2] > 1:
            layout = str(type.memory_format).removeprefix("torch.").removesuffix("_format")
            found.setdefault(node.op_type.split(".")[1], []).append(layout)
    return found


def test_norms_pools_and_gradients_of_a_step_are_in_channels_last() -> None:
    graph = moved(step_of(Classifier(), batch_of()))

    found = layouts(graph)

    for op in ("_native_batch_norm_legit_functional", "native_batch_norm_backward", "threshold_backward"):
        assert found[op] == ["channels_last"] * 2
    assert found["max_pool2d_with_indices"] == found["max_pool2d_with_indices_backward"] == ["channels_last"]
    assert found["convolution"] == ["channels_last"] * 2


def test_norms_stay_where_they_are_exact() -> None:
    graph = moved(step_of(Classifier(), batch_of()), batch_norms=False)

    found = layouts(graph)

    assert found["_native_batch_norm_legit_functional"] == ["contiguous"] * 2
    assert found["max_pool2d_with_indices"] == ["channels_last"]


def test_indices_of_a_pool_are_where_its_gradient_looks_for_them() -> None:
    graph = moved(step_of(Classifier(), batch_of()))

    (pool,) = graph.nodes_of("aten.max_pool2d_with_indices.default")
    (gradient,) = graph.nodes_of("aten.max_pool2d_with_indices_backward.default")

    assert pool.outputs[1].tensor_type.memory_format is torch.channels_last
    assert pool.outputs[1] in gradient.inputs


def test_new_parameters_keep_their_strides() -> None:
    model, batch = Classifier(), batch_of()
    graph = moved(step_of(model, batch))

    _, contents = Interpreter(graph, model.state_dict()).run_flat(batch, RATE)

    for name, weight in model.state_dict().items():
        assert contents[name].stride() == weight.stride()


def test_a_step_computes_what_it_did() -> None:
    plain = step_of(nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 16, 10)), batch_of())
    steps = [
        step_of(Classifier(), batch_of()),
        step_of(Classifier(pool=nn.AvgPool2d(2)), batch_of()),
        plain,
    ]
    item = ChannelsLast(batch_norms=True)

    for graph, count in zip(steps, (1, 1, 0), strict=True):
        assert check_pass(item, graph, data=Checked(calls=[(batch_of(), RATE)])) == count
    assert check_pass(ChannelsLast, steps[0], data=Checked(calls=[(batch_of(), RATE)])) == 1


def test_a_small_step_is_left_alone() -> None:
    graph = moved(step_of(Classifier(channels=6, pool=nn.Identity()), batch_of(1, size=4)))

    assert all("channels_last" not in found for found in layouts(graph).values())


def test_the_pipeline_of_steps_is_the_one_for_the_cpu_where_aten_runs_there() -> None:
    aten, other = backends_of("aten"), [TinyBackend()]

    assert passes_on("train", CPU, aten) == "train-cpu"
    assert passes_on("train", torch.device("cuda"), aten) == "train"
    assert passes_on("train", CPU, other) == "train"
    assert passes_on("minimal", CPU, aten) == "minimal"
    assert passes_on(None, CPU, aten) is None


def test_a_step_on_the_cpu_is_in_channels_last() -> None:
    model = Classifier()
    step = TrainStep(model, torch.optim.SGD(model.parameters(), lr=0.1), F.cross_entropy)

    step(*batch_of())

    assert layouts(step.graph)["max_pool2d_with_indices"] == ["channels_last"]


class OnTheCpu:
    """A step of `TrainStep` with the pipeline for CPUs."""

    def __init__(self, case: Case, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self._model, self._optimizer = model, optimizer
        self.step = TrainStep(model, optimizer, case.loss, passes="train-cpu")

    def __call__(self, *batch: Any) -> Any:
        return self.step(*batch)

    def state(self) -> State:
        assert layouts(self.step.graph)["max_pool2d_with_indices"] == ["channels_last"]
        return full_state(self._model, self._optimizer)


def images(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    return torch.randn(8, 3, 16, 16, generator=generator), torch.randint(0, 10, (8,), generator=generator)


@pytest.mark.parametrize("recipe", ["SGD, nesterov", "Adam"])
def test_training_is_as_near_to_float64_as_eager_is(recipe: str) -> None:
    case = Case("classifier", Classifier, images, F.cross_entropy)

    found = trained(OnTheCpu, case, recipe_named(recipe))

    assert not problems(found, reference(case, recipe_named(recipe)))
