"""Convolutions by constant weights become convolutions by packed ones."""

import re
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from npu_runtime import IRExecutor
from tests.support.corpus.case import Holding
from tests.support.passes.cpu_cases import assert_computes, captured, ops, optimized, refusals

PASSES = "constant-folding,pack-panels"


@pytest.mark.parametrize(
    ("outputs", "options"),
    [
        (5, {"kernel_size": 3, "padding": 1}),
        (40, {"kernel_size": (3, 1), "stride": 2, "bias": False}),
        (130, {"kernel_size": 1}),
        (7, {"kernel_size": 3, "padding": "same", "dilation": 2}),
        (6, {"kernel_size": 3, "padding": 1, "groups": 6}),
    ],
    ids=["padding", "stride", "pixel", "same", "depthwise"],
)
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_a_convolution_reads_panels_that_the_prologue_makes(
    outputs: int, options: dict[str, Any], memory_format: torch.memory_format
) -> None:
    model = nn.Conv2d(6, outputs, **options)
    x = torch.randn(2, 6, 9, 8).to(memory_format=memory_format)

    graph = optimized(model, x, passes=PASSES)

    assert ops(graph)["npu.packed_conv2d"] == 1
    assert [node.op_type for node in graph.prologue][-1] == "npu.pack_filters.default"
    assert_computes(graph, model, x)


@pytest.mark.parametrize(("function", "reason"), [
    pytest.param(lambda m, x: F.conv2d(x, m.weight[:, :3], groups=2), "it has 2 groups", id="groups"),
    pytest.param(lambda m, x: F.conv2d(x, x[:, :, :2, :2]), "its weight %.*", id="no weight"),
    pytest.param(lambda m, x: F.conv2d(x[0], m.weight), "not a batch of images", id="no batch"),
    pytest.param(lambda m, x: F.conv_transpose2d(x[0], m.weight), "not a batch", id="transposed"),
    pytest.param(lambda m, x: F.conv_transpose2d(x, m.weight, groups=2), "it has 2 groups", id="two groups"),
    pytest.param(lambda m, x: F.conv_transpose2d(x, m.weight, dilation=2), "a dilation", id="dilation"),
    pytest.param(lambda m, x: F.conv_transpose2d(x, x[:1].transpose(0, 1)), "at each", id="given"),
])  # fmt: skip
def test_what_is_not_packed_has_the_reason(function: object, reason: str) -> None:
    model = Holding(function, weight=nn.Parameter(torch.randn(6, 6, 3, 3)))

    (found,) = refusals(model, torch.randn(2, 6, 9, 8), passes="constant-folding,pack-panels")

    assert re.search(reason, found.reason), found


def test_the_pipeline_of_the_host_packs_every_convolution() -> None:
    layers = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 1)
    model, x = nn.Sequential(*layers).eval(), torch.randn(2, 3, 9, 8)

    executor = IRExecutor(captured(model, x), model.state_dict(), passes="host")

    assert ops(executor.graph)["npu.packed_conv2d"] == 2
    torch.testing.assert_close(executor(x), model(x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("outputs", "options"),
    [
        (5, {"kernel_size": 2, "stride": 2}),
        (40, {"kernel_size": (4, 3), "stride": (2, 3), "padding": 1, "bias": False}),
        (130, {"kernel_size": 3, "stride": 2, "padding": 1, "output_padding": 1}),
    ],
    ids=["stride", "pairs", "output padding"],
)
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_a_transposed_convolution_reads_panels_as_well(
    outputs: int, options: dict[str, Any], memory_format: torch.memory_format
) -> None:
    model = nn.ConvTranspose2d(6, outputs, **options).eval()
    x = torch.randn(2, 6, 9, 8).to(memory_format=memory_format)

    graph = optimized(model, x, passes=PASSES)
    executor = IRExecutor(captured(model, x), model.state_dict(), passes="host", backend="host")

    assert ops(graph)["npu.packed_conv_transpose2d"] == 1
    assert ops(executor.graph)["npu.packed_conv_transpose2d"] == 1
    assert_computes(graph, model, x)
    torch.testing.assert_close(executor(x), model(x), rtol=1e-4, atol=1e-4)
    assert executor(x).stride() == model(x).stride()


@pytest.mark.parametrize("size", [56, 14], ids=["tiles of 4", "tiles of 2"])
def test_many_channels_get_panels_of_transformed_weights(size: int) -> None:
    torch.manual_seed(0)
    channels = 3584 // size
    model = nn.Conv2d(channels, channels, 3, padding=1)
    x = torch.randn(1, channels, size, size).to(memory_format=torch.channels_last)

    graph = optimized(model, x, passes=PASSES)

    (node,) = graph.nodes_of("npu.winograd_conv2d.default")
    assert node.attrs["tile"] == (4 if size == 56 else 2)
    assert_computes(graph, model, x)


def test_a_small_convolution_is_in_channels_last_before_it_is_packed() -> None:
    layers = nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1)
    model, x = nn.Sequential(*layers).eval(), torch.randn(1, 8, 32, 32)

    executor = IRExecutor(captured(model, x), model.state_dict(), passes="host")

    images = [node.outputs[0].type for node in executor.graph.nodes_of("npu.packed_conv2d.default")]
    assert [str(image) for image in images] == ["f32[1, 8, 32, 32]@channels_last"] * 2
    torch.testing.assert_close(executor(x), model(x), rtol=1e-4, atol=1e-4)


def test_some_channels_of_images_in_channels_last_give_images_in_channels_last() -> None:
    convolution = nn.Conv2d(8, 4, 3, padding=1)
    model = Holding(lambda self, x: self.convolution(x[:, :8]), convolution=convolution)
    x = torch.randn(2, 16, 9, 8).to(memory_format=torch.channels_last)

    graph = optimized(model, x, passes="constant-folding,pack-panels")

    (node,) = graph.nodes_of("npu.packed_conv2d.default")
    assert str(node.outputs[0].type) == "f32[2, 4, 9, 8]@channels_last"
    assert ops(graph)["clone"] == 0  # none to match other strides
    assert_computes(graph, model, x)
