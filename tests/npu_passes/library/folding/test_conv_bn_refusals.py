"""Batch norms that cannot be folded stay, and it is said why."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from npu_ir import Graph, TensorType
from npu_passes import PassManager
from npu_passes.library.folding.conv_bn_folding import ConvBnFolding
from tests.support.passes.folding_cases import Call, hand_written_norm, image, refusals, run_passes, trained


def refused(model: nn.Module, *inputs: Tensor, passes: Any = (ConvBnFolding,)) -> list[str]:
    """Return the reasons, having asserted that nothing was done."""
    result = run_passes(model, inputs, passes)
    assert result.journal.rewrites == []
    return refusals(result)


def test_training_mode_is_refused() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).train()

    assert refused(model, image(3)) == ["it is in training mode"]


def test_missing_statistics_are_refused() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, track_running_stats=False)).eval()

    assert refused(model, image(3)) == ["it has no running statistics: it uses those of the batch"]


def test_statistics_that_the_graph_updates_are_refused() -> None:
    def function(self: Any, x: Tensor) -> Tensor:
        result = self.norm(self.conv(x))
        self.norm.running_mean.mul_(0.9)
        return result

    model = trained(Call(function, conv=nn.Conv2d(3, 4, 3), norm=nn.BatchNorm2d(4)))

    assert refused(model, image(3)) == ["%norm.running_mean is updated by the graph"]


def test_a_convolution_whose_output_is_used_elsewhere_is_refused() -> None:
    def function(self: Any, x: Tensor) -> Tensor:
        y = self.conv(x)
        return self.norm(y) + y

    model = trained(Call(function, conv=nn.Conv2d(3, 4, 3), norm=nn.BatchNorm2d(4)))

    assert refused(model, image(3)) == ["the output of the convolution is used elsewhere"]


def test_a_convolution_whose_output_is_a_result_is_refused() -> None:
    def function(self: Any, x: Tensor) -> Any:
        y = self.conv(x)
        return self.norm(y), y

    model = trained(Call(function, conv=nn.Conv2d(3, 4, 3), norm=nn.BatchNorm2d(4)))

    assert refused(model, image(3)) == ["the output of the convolution is used elsewhere"]


def test_two_norms_of_one_convolution_are_refused() -> None:
    def function(self: Any, x: Tensor) -> Tensor:
        y = self.conv(x)
        return self.one(y) * self.two(y)

    model = trained(Call(function, conv=nn.Conv2d(3, 4, 3), one=nn.BatchNorm2d(4), two=nn.BatchNorm2d(4)))

    assert refused(model, image(3)) == ["the output of the convolution is used elsewhere"] * 2


def test_weights_that_depend_on_the_call_are_refused() -> None:
    def function(self: Any, x: Tensor, weight: Tensor) -> Tensor:
        return self.norm(F.conv2d(x, weight))

    model = trained(Call(function, norm=nn.BatchNorm2d(4)))

    reasons = refused(model, image(3), torch.randn(4, 3, 3, 3))
    assert reasons == ["%inputs_1 is an input of the call, and the convolution reads it as a weight"]


def test_weights_of_open_size_are_refused() -> None:
    model = Call(
        lambda self, x, weight: F.batch_norm(F.conv2d(x, weight), self.mean, self.mean), mean=torch.ones(4)
    )
    height = torch.export.Dim("height", min=1, max=4)

    result = run_passes(
        model,
        (image(3), torch.randn(4, 3, 3, 3)),
        [ConvBnFolding],
        dynamic_shapes={"inputs": (None, {2: height})},
    )

    (reason,) = refusals(result)
    assert reason == "%inputs_1 is an input of the call, and the convolution reads it as a weight"


def test_weights_that_are_computed_from_inputs_are_refused() -> None:
    def function(self: Any, x: Tensor, weight: Tensor) -> Tensor:
        return self.norm(F.conv2d(x, self.conv.weight * weight))

    model = trained(Call(function, conv=nn.Conv2d(3, 4, 3), norm=nn.BatchNorm2d(4)))

    reasons = refused(model, image(3), torch.randn(4, 1, 1, 1))
    assert reasons == ["%mul is computed in each call, and the convolution reads it as a weight"]


def test_a_large_weight_that_is_computed_from_a_smaller_one_is_refused(subtests: pytest.Subtests) -> None:
    rows = {
        "of a smaller dtype": (lambda w: w.to(torch.float32), "to"),
        "expanded": (lambda w: w[:1].to(torch.float32).expand(512, 1024), "expand"),
    }
    for case, (weight, name) in rows.items():
        with subtests.test(case):
            small = torch.randint(-128, 127, (512, 1024), dtype=torch.int8)
            model = trained(
                Call(
                    lambda self, x: self.norm(F.linear(x, weight(self.w))), w=small, norm=nn.BatchNorm1d(512)
                )
            )

            assert refused(model, torch.randn(2, 1024)) == [
                (
                    f"%{name} takes 2097152 bytes, and is computed from 524288: "
                    "a new one would be computed in each call"
                )
            ]


def test_a_small_weight_that_is_computed_from_a_smaller_one_is_folded() -> None:
    small = torch.randint(-128, 127, (8, 4), dtype=torch.int8)
    model = trained(
        Call(lambda self, x: self.norm(F.linear(x, self.w.float())), w=small, norm=nn.BatchNorm1d(8))
    )

    result = run_passes(model, [torch.randn(2, 4)], "conv-bn-folding,constant-folding")

    assert [node.op_type for node in result.graph.body] == ["aten.linear.default"]


def test_a_linear_layer_on_sequences_is_refused() -> None:
    model = trained(nn.Sequential(nn.Linear(5, 7), nn.BatchNorm1d(7)))

    assert refused(model, torch.randn(2, 7, 5)) == [
        "it normalizes axis 1, and the output channels are axis 2"
    ]


def test_a_convolution_without_batch_is_refused() -> None:
    def function(self: Any, x: Tensor) -> Tensor:
        return self.norm(self.conv(x))

    model = trained(Call(function, conv=nn.Conv2d(3, 4, 3), norm=nn.BatchNorm1d(4)))

    reasons = refused(model, torch.randn(3, 6, 6))
    assert reasons == ["it normalizes axis 1, and the output channels are axis 0"]


def test_a_norm_of_another_number_of_channels_is_refused() -> None:
    graph = hand_written_norm("aten.native_batch_norm.default", {"training": False}, 3)
    norm = graph.nodes[-1]
    graph.set_input(norm, 3, graph.add_parameter("mean", TensorType((1,), torch.float32)))

    result = PassManager([ConvBnFolding]).run(graph)

    assert refusals(result) == ["%mean of the norm is f32[1], and there are 4 output channels"]


def test_another_dtype_of_the_result_is_refused() -> None:
    graph = hand_written_norm("aten._native_batch_norm_legit_no_training.default", {}, 3)
    norm = graph.nodes[-1]
    wide = TensorType((2, 4, 4, 4), torch.float64)
    other = graph.insert(
        norm.op_type,
        norm.inputs,
        norm.attrs,
        types=[wide, norm.outputs[1].type, norm.outputs[2].type],
        operands=norm.operands,
    )
    graph.set_outputs(other.outputs[0])
    graph.erase(norm)

    result = PassManager([ConvBnFolding]).run(graph)

    assert refusals(result) == ["it makes f64[2, 4, 4, 4] of f32[2, 4, 4, 4]: shape or dtype would change"]


def test_complex_convolutions_are_refused() -> None:
    graph, c64 = Graph("complex"), torch.complex64
    x, weight = (
        graph.add_input("x", TensorType((2, 3, 6), c64)),
        graph.add_parameter("w", TensorType((4, 3, 3), c64)),
    )
    names = ("gamma", "beta", "mean", "var")
    norm = [graph.add_parameter(name, TensorType((4,), torch.float32)) for name in names]
    made = TensorType((2, 4, 4), c64)
    conv = graph.insert("aten.conv1d.default", [x, weight], types=made, operands=["input", "weight"])
    node = graph.insert(
        "aten.batch_norm.default",
        [conv.outputs[0], *norm],
        {"training": False, "momentum": 0.1, "eps": 1e-5, "cudnn_enabled": False},
        types=made,
        operands=["input", "weight", "bias", "running_mean", "running_var"],
    )
    graph.set_outputs(node.outputs[0])

    result = PassManager([ConvBnFolding]).run(graph)

    assert refusals(result) == ["the convolution computes c64[2, 4, 4], which is not real floating point"]


def test_a_norm_that_follows_something_else_says_what() -> None:
    model = trained(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.BatchNorm2d(4)))

    reasons = refused(model, image(3))
    assert reasons == ["it follows aten.relu.default, which is not a convolution or linear layer of the body"]


def test_linear_layers_are_left_alone_if_asked_for() -> None:
    model = trained(nn.Sequential(nn.Linear(5, 7), nn.BatchNorm1d(7)))

    reasons = refused(model, torch.randn(4, 5), passes=[ConvBnFolding(fold_linear=False)])
    assert reasons == ["it follows a linear layer, and fold_linear is off"]


def test_a_norm_whose_statistics_are_results_is_refused() -> None:
    graph = hand_written_norm("aten.native_batch_norm.default", {"training": False}, 3)
    norm = graph.nodes[-1]
    graph.set_outputs((norm.outputs[0], norm.outputs[1]))

    result = PassManager([ConvBnFolding]).run(graph)

    assert refusals(result) == ["its statistics are read"]
