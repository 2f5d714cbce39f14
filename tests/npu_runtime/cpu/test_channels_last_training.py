"""Norms, pools and gradients of a training step are channels-last where that outweighs the copies."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from npu_ir import Graph, Interpreter
from npu_ir.ops.inference import infer_types
from npu_passes import PassManager
from npu_passes.core.registry import TRAIN
from npu_passes.manager.checked_mode import Checked
from npu_passes.testing import check_pass
from npu_runtime.backends.registry import usable_backends
from npu_runtime.cpu.batch_norm_to_sums import BatchNormToSums
from npu_runtime.cpu.channels_last import ChannelsLast
from npu_runtime.executor.options import resolve_step_passes
from tests.support.backends.tiny_backend import TinyBackend
from tests.support.passes.cpu_training import (
    RATE,
    Classifier,
    assert_trains,
    batch_of,
    count_of,
    layouts,
    step_of,
)
from tests.support.rows import each_row
from tests.support.training.cases import Case

CPU = torch.device("cpu")


def moved(graph: Graph) -> Graph:
    return PassManager([ChannelsLast]).run(with_sums(graph)).graph


def with_sums(graph: Graph) -> Graph:
    """Return a step whose norms are sums, which work in any layout."""
    return PassManager([BatchNormToSums(min_elements=0)]).run(graph).graph


def test_norms_pools_and_gradients_of_a_step_are_in_channels_last() -> None:
    graph = moved(step_of(Classifier(), batch_of()))

    found = layouts(graph)

    # Of each norm the squares for its variance, and what is normalized; then three products of its gradients.
    assert found["mul"] == ["channels_last"] * 2 * (2 + 3)
    assert found["threshold_backward"] == ["channels_last"] * 2
    assert found["max_pool2d_with_indices"] == found["max_pool2d_with_indices_backward"] == ["channels_last"]
    assert found["convolution"] == ["channels_last"] * 2


def test_norms_that_are_ops_of_their_own_stay_in_contiguous_memory() -> None:
    graph = PassManager([ChannelsLast]).run(step_of(Classifier(), batch_of())).graph

    found = layouts(graph)

    assert found["_native_batch_norm_legit_functional"] == ["contiguous"] * 2
    assert found["max_pool2d_with_indices"] == ["channels_last"]


def test_norms_and_trained_weights_of_a_step_for_the_backend_host() -> None:
    batch = batch_of()
    step = step_of(Classifier(), batch)

    graph = PassManager([ChannelsLast(for_host=True)]).run(step).graph

    found = layouts(graph)
    assert found["_native_batch_norm_legit_functional"] == ["channels_last"] * 2
    assert found["native_batch_norm_backward"] == ["channels_last"] * 2
    assert found["convolution"] == ["channels_last"] * 2
    # Kernels read weights as they are.
    for node in graph.nodes_of("aten.convolution.default"):
        assert node.inputs[1].argument is not None
    assert check_pass(ChannelsLast(for_host=True), step, data=Checked(calls=[(batch, RATE)])) == 1


def test_the_gradient_of_a_weight_of_one_pixel_is_not_copied_back_and_forth() -> None:
    grow = nn.Sequential(
        nn.ConvTranspose2d(100, 128, 4, bias=False), nn.BatchNorm2d(128), nn.ReLU(),
        nn.ConvTranspose2d(128, 64, 4, 2, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU(),
    )  # fmt: skip
    batch = torch.randn(8, 100, 1, 1), torch.rand(8, 64, 8, 8)
    manager = PassManager([ChannelsLast(for_host=True, weights=False)])
    first = manager.run(step_of(grow, batch)).graph

    second = manager.run(first)

    assert not second.journal.rewrites
    assert len(second.graph.nodes) == len(first.nodes)
    assert count_of(first, "aten.clone.default") == 4


class HalfOfTheChannels(nn.Module):
    """Two convolutions, the second of a part of the first one's images."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 32, 3, padding=1)
        self.second = nn.Conv2d(16, 32, 3, padding=1)
        self.head = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        images = self.second(self.first(x)[:, :16]).relu()
        return self.head(images.mean((2, 3)))  # type: ignore[no-any-return]


def test_convolutions_of_a_part_of_images_have_the_layout_that_pytorch_gives_them() -> None:
    step = step_of(HalfOfTheChannels(), batch_of())

    graph = PassManager([ChannelsLast(for_host=True)]).run(step).graph

    convolutions = list(graph.nodes_of("aten.convolution.default"))
    assert [node.outputs[0].tensor_type for node in convolutions] == [
        infer_types(node.op_type, node.inputs, node.attrs, operands=node.operands, symbols={})[0]
        for node in convolutions
    ]


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


@each_row("pool", [nn.MaxPool2d(2), nn.AvgPool2d(2)])
def test_a_step_computes_what_it_did(pool: Any) -> None:
    batch = batch_of(32)
    graph = with_sums(step_of(Classifier(pool=pool), batch))

    assert check_pass(ChannelsLast, graph, data=Checked(calls=[(batch, RATE)])) == 1


def test_a_step_without_images_is_left_alone() -> None:
    graph = step_of(nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 16, 10)), batch_of())

    assert check_pass(ChannelsLast, graph, data=Checked(calls=[(batch_of(), RATE)])) == 0


def test_a_small_step_is_left_alone() -> None:
    graph = moved(step_of(Classifier(channels=6, pool=nn.Identity()), batch_of(1, size=4)))

    assert all("channels_last" not in found for found in layouts(graph).values())


def test_the_pipeline_of_steps_is_the_one_for_the_cpu_where_aten_runs_there() -> None:
    aten, other = usable_backends("aten"), [TinyBackend()]

    assert resolve_step_passes("auto", CPU, aten) == "train-cpu"
    assert resolve_step_passes("auto", torch.device("cuda"), aten) == "train"
    assert resolve_step_passes("auto", CPU, other) == "train"
    assert resolve_step_passes("train", CPU, aten) == "train"
    assert resolve_step_passes("minimal", CPU, aten) == "minimal"
    assert resolve_step_passes(None, CPU, aten) is None


def images(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    return torch.randn(8, 3, 16, 16, generator=generator), torch.randint(0, 10, (8,), generator=generator)


def channels_last_classifier() -> nn.Module:
    return Classifier().to(memory_format=torch.channels_last)


def channels_last_images(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    x, labels = images(generator)
    return x.to(memory_format=torch.channels_last), labels


@pytest.mark.parametrize(
    "passes", ["train-cpu", f"{TRAIN},batch-norm-to-sums{{min_elements=0}},channels-last"]
)
def test_training_is_as_near_to_float64_as_eager_is(passes: str) -> None:
    case = Case("classifier", Classifier, images, F.cross_entropy)
    other = Case(
        "classifier in channels-last", channels_last_classifier, channels_last_images, F.cross_entropy
    )
    assert_trains(case, passes, uses_channels_last, same=[other])


def uses_channels_last(graph: Graph) -> bool:
    return layouts(graph)["max_pool2d_with_indices"] == ["channels_last"]
