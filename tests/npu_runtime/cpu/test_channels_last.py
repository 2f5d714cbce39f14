"""Convolutions and what is between them work in channels-last where that saves more than the copies cost."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from npu_ir import Graph
from npu_passes import PassManager
from npu_passes.testing import check_pass
from npu_runtime.cpu.channels_last import ChannelsLast
from tests.support.corpus.case import Holding
from tests.support.passes.cpu_cases import Residual, assert_computes, captured, image, ops, optimized
from tests.support.rows import each_row

PASSES = "constant-folding,channels-last"
WIDE = 128  # channels: two convolutions of them pay for the copies at the ends
WEIGHT = torch.rand(WIDE, WIDE, 2, 2) / WIDE


def layouts(graph: Graph, op: str) -> list[str]:
    found = [
        node.outputs[0].tensor_type.memory_format
        for node in graph.body
        if node.op_type == f"aten.{op}.default"
    ]
    return [str(item).removeprefix("torch.") for item in found]


def between(function: Any) -> Holding:
    """Return two convolutions with something between them that returns as many channels."""
    first, second = nn.Conv2d(WIDE, WIDE, 3, padding=1), nn.Conv2d(WIDE, WIDE, 3, padding=1)
    return Holding(lambda self, x: self.second(function(self.first(x), x)), first=first, second=second)


def test_a_run_of_convolutions_has_one_copy_at_either_end() -> None:
    model, x = Residual(WIDE), image(WIDE, 28)

    graph = optimized(model, x, passes=PASSES)

    assert ops(graph) == {"clone": 2, "conv2d": 2, "relu": 2, "add.Tensor": 1}
    assert layouts(graph, "conv2d") == ["channels_last"] * 2
    assert layouts(graph, "clone") == ["channels_last", "contiguous_format"]
    assert_computes(graph, model, x)


@each_row("function", {
    "hardswish": (lambda y, x: F.hardswish(y)),
    "relu6": (lambda y, x: F.relu6(y)),
    "silu-mul": (lambda y, x: F.silu(y) * 2),
    "max-pool": (lambda y, x: F.max_pool2d(y, 3, 1, 1)),
    "avg-pool": (lambda y, x: F.avg_pool2d(y, 2)),
    "nearest": (lambda y, x: F.interpolate(y, scale_factor=2)),
    "bilinear": (lambda y, x: F.interpolate(y, scale_factor=2, mode="bilinear")),
    "squeeze-excite": (lambda y, x: y * F.adaptive_avg_pool2d(y, 1).sigmoid()),
    "cat-of-slices": (lambda y, x: torch.cat([y[:, :64].relu(), y[:, 64:].tanh()], 1)),
    "cat": (lambda y, x: torch.cat([y, x], 1).relu()[:, :WIDE]),
    "pad": (lambda y, x: F.pad(y, (1, 1, 1, 1))),
    "reflect": (lambda y, x: F.pad(y, (1, 2, 3, 0), mode="reflect")),
    "replicate": (lambda y, x: F.pad(y, (1, 2, 3, 0), mode="replicate")),
    "circular": (lambda y, x: F.pad(y, (1, 2, 3, 0), mode="circular")),
    "transposed": (lambda y, x: F.conv_transpose2d(y, WEIGHT, stride=2)),
    "along-the-width": (lambda y, x: y * torch.linspace(0, 1, 14)),
    "mask": (lambda y, x: torch.where(y > 0, y, x)),
    "softmax": (lambda y, x: F.softmax(y, 1)),
    "views": (lambda y, x: y.flatten(2).transpose(1, 2).reshape(y.shape)),
    "mean": (lambda y, x: y + y.mean((2, 3)).sum()),
})  # fmt: skip
def test_what_is_between_convolutions_keeps_its_values(function: Any) -> None:
    model, x = between(function), image(WIDE, 14)

    graph = captured(model, x)

    assert check_pass(ChannelsLast(), [graph]) == 1
    assert_computes(PassManager(PASSES).run(graph).graph, model, x)


def test_pools_and_activations_in_a_run_are_carried_along_without_copies() -> None:
    model = between(lambda y, x: F.max_pool2d(F.hardswish(y), 3, 1, 1) * F.adaptive_avg_pool2d(y, 1))

    graph = optimized(model, image(WIDE, 28), passes=PASSES)

    assert ops(graph)["clone"] == 2
    assert layouts(graph, "max_pool2d") == layouts(graph, "hardswish") == ["channels_last"]


def test_images_that_are_in_channels_last_already_stay() -> None:
    model, x = Residual(WIDE), image(WIDE, 28).to(memory_format=torch.channels_last)

    graph = optimized(model, x, passes=PASSES)

    assert "clone" not in ops(graph)
    assert_computes(graph, model, x)


def test_weights_between_convolutions_are_copied_when_they_are_bound() -> None:
    model = between(lambda y, x: y)
    model.register_parameter("scale", nn.Parameter(torch.randn(1, WIDE, 28, 28)))
    model.function = lambda self, x: self.second(self.first(x) * self.scale)
    x = image(WIDE, 28)

    graph = optimized(model, x, passes=PASSES)

    assert [node.op_type for node in graph.prologue].count("aten.clone.default") == 3
    assert ops(graph)["clone"] == 2
    assert_computes(graph, model, x)


def test_what_does_not_pay_or_is_something_else_stays(subtests: pytest.Subtests) -> None:
    rows = {
        "small": (nn.Conv2d(8, 8, 3, padding=1), image(8, 32)),
        "small-run": (Residual(8), image(8, 16)),
        "copies-cost-more": (nn.Conv2d(64, 64, 1), image(64, 14)),
        "one-dimension": (nn.Conv1d(256, 256, 3), torch.randn(1, 256, 128)),
        "three-dimensions": (nn.Conv3d(32, 32, 3), torch.randn(1, 32, 12, 12, 12)),
        "transposed": (nn.ConvTranspose2d(WIDE, WIDE, 3), image(WIDE, 28)),
        "no-convolution": (nn.Sequential(nn.ReLU(), nn.MaxPool2d(2)), image(WIDE, 28)),
        "bfloat16": (Residual(WIDE).bfloat16(), image(WIDE, 28).bfloat16()),
        "float64": (Residual(WIDE).double(), image(WIDE, 28).double()),
        "no-batch": (nn.Conv2d(WIDE, WIDE, 3), image(WIDE, 28)[0]),
        "empty": (nn.Conv2d(WIDE, WIDE, 3), torch.randn(0, WIDE, 28, 28)),
    }
    for case, (model, x) in rows.items():
        with subtests.test(case):
            assert check_pass(ChannelsLast(), captured(model, x)) == 0


def test_a_lone_convolution_of_one_channel_stays() -> None:
    model, x = nn.Conv2d(1, 8, 3), image(1, 32)

    graph = optimized(model, x, passes="constant-folding,channels-last{for_host=true}")

    assert ops(graph) == {"conv2d": 1}


@each_row("layers", {
    "one channel": [nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 4, 3)],
    "three channels": [nn.Conv2d(3, 8, 3), nn.Hardswish(), nn.Conv2d(8, 4, 3), nn.ReLU()],
    "transposed": [nn.ConvTranspose2d(3, 8, 2, 2), nn.GELU(), nn.Conv2d(8, 4, 3), nn.Tanh()],
    "images as results": [nn.Conv2d(1, 8, 3), nn.Conv2d(8, 8, 1), nn.Sigmoid()],
})  # fmt: skip
def test_what_the_host_computes_between_copies_stays_in_a_second_run(layers: list[nn.Module]) -> None:
    model = nn.Sequential(*layers)
    x = image(next(model.parameters()).shape[0 if isinstance(layers[0], nn.ConvTranspose2d) else 1], 32)
    graph = captured(model, x)

    assert check_pass(ChannelsLast(for_host=True), [graph]) == 1

    once = PassManager("constant-folding,channels-last{for_host=true}").run(graph).graph
    assert layouts(once, "clone").count("channels_last") == 1
    assert_computes(once, model, x)
