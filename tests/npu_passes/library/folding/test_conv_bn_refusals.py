"""Batch norms that cannot be folded stay, and it is said why."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from npu_ir import Graph, TensorType, parse_ir
from npu_passes import PassManager
from npu_passes.library.folding.conv_bn_folding import ConvBnFolding
from tests.support.corpus.case import Holding
from tests.support.passes.folding_cases import hand_written_norm, image, refusals, run_passes, trained
from tests.support.rows import each_row

ELSEWHERE = "the output of the convolution is used elsewhere"


def refused(model: nn.Module, inputs: Sequence[Tensor], item: ConvBnFolding | None = None) -> list[str]:
    """Return the reasons, having asserted that nothing was done."""
    result = run_passes(model, inputs, [item or ConvBnFolding()])
    assert result.journal.rewrites == []
    return refusals(result)


def conv_and_norm(function: Callable[..., Any]) -> nn.Module:
    return trained(Holding(function, conv=nn.Conv2d(3, 4, 3), norm=nn.BatchNorm2d(4)))


def updates_its_statistics(self: Any, x: Tensor) -> Tensor:
    result = self.norm(self.conv(x))
    self.norm.running_mean.mul_(0.9)
    return result


def reads_the_convolution_twice(self: Any, x: Tensor) -> Tensor:
    y = self.conv(x)
    return self.norm(y) + y


def returns_the_convolution(self: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    y = self.conv(x)
    return self.norm(y), y


def test_a_norm_that_cannot_be_folded_says_why(subtests: pytest.Subtests) -> None:
    conv, linear, x = nn.Conv2d(3, 4, 3), nn.Linear(5, 7), image(3)
    untracked = nn.BatchNorm2d(4, track_running_stats=False)
    rows = [
        (nn.Sequential(conv, nn.BatchNorm2d(4)).train(), [x], "it is in training mode"),
        (nn.Sequential(conv, untracked).eval(), [x],
            "it has no running statistics: it uses those of the batch"),
        (conv_and_norm(updates_its_statistics), [x], "%norm.running_mean is updated by the graph"),
        (conv_and_norm(reads_the_convolution_twice), [x], ELSEWHERE),
        (conv_and_norm(returns_the_convolution), [x], ELSEWHERE),
        (conv_and_norm(lambda self, x, weight: self.norm(F.conv2d(x, weight))), [x, torch.randn(4, 3, 3, 3)],
            "%args_1 is an input of the call, and the convolution reads it as a weight"),
        (conv_and_norm(lambda self, x, weight: self.norm(F.conv2d(x, self.conv.weight * weight))),
            [x, torch.randn(4, 1, 1, 1)],
            "%mul is computed in each call, and the convolution reads it as a weight"),
        (trained(nn.Sequential(linear, nn.BatchNorm1d(7))), [torch.randn(2, 7, 5)],
            "it normalizes axis 1, and the output channels are axis 2"),
        (trained(Holding(lambda self, x: self.norm(self.conv(x)), conv=conv, norm=nn.BatchNorm1d(4))),
            [torch.randn(3, 6, 6)], "it normalizes axis 1, and the output channels are axis 0"),
        (trained(nn.Sequential(conv, nn.ReLU(), nn.BatchNorm2d(4))), [x],
            "it follows aten.relu.default, which is not a convolution or linear layer of the body"),
    ]  # fmt: skip
    for model, inputs, reason in rows:
        with subtests.test(reason):
            assert refused(model, inputs) == [reason]


@each_row("name, weight", {
    "to": (lambda w: w.to(torch.float32)),
    "expand": (lambda w: w[:1].to(torch.float32).expand(512, 1024)),
}.items())  # fmt: skip
def test_a_large_weight_that_is_computed_from_a_smaller_one_is_refused(name: str, weight: Any) -> None:
    small = torch.randint(-128, 127, (512, 1024), dtype=torch.int8)

    model = Holding(lambda self, x: self.norm(F.linear(x, weight(self.w))), w=small, norm=nn.BatchNorm1d(512))

    (reason,) = refused(trained(model), [torch.randn(2, 1024)])

    assert reason.startswith(f"%{name} takes 2097152 bytes, and is computed from 524288: a new one")


def test_a_small_weight_that_is_computed_from_a_smaller_one_is_folded() -> None:
    small = torch.randint(-128, 127, (8, 4), dtype=torch.int8)
    model = Holding(lambda self, x: self.norm(F.linear(x, self.w.float())), w=small, norm=nn.BatchNorm1d(8))

    result = run_passes(trained(model), [torch.randn(2, 4)], "conv-bn-folding,constant-folding")

    assert [node.op_type for node in result.graph.body] == ["aten.linear.default"]


def test_linear_layers_are_left_alone_if_asked_for() -> None:
    model = trained(nn.Sequential(nn.Linear(5, 7), nn.BatchNorm1d(7)))

    reasons = refused(model, [torch.randn(4, 5)], ConvBnFolding(fold_linear=False))

    assert reasons == ["it follows a linear layer, and fold_linear is off"]


def with_another_mean(graph: Graph) -> None:
    graph.set_input(graph.nodes[-1], 3, graph.add_parameter("mean", TensorType((1,), torch.float32)))


def with_another_dtype(graph: Graph) -> None:
    norm = graph.nodes[-1]
    types = [TensorType((2, 4, 4, 4), torch.float64), *(value.type for value in norm.outputs[1:])]
    other = graph.insert(norm.op_type, norm.inputs, norm.attrs, types=types, operands=norm.operands)
    graph.set_outputs(other.outputs[0])
    graph.erase(norm)


def with_statistics_as_results(graph: Graph) -> None:
    graph.set_outputs(tuple(graph.nodes[-1].outputs[:2]))


@each_row("edit, reason", [
    (with_another_mean, "%mean of the norm is f32[1], and there are 4 output channels"),
    (with_another_dtype, "it makes f64[2, 4, 4, 4] of f32[2, 4, 4, 4]: shape or dtype would change"),
    (with_statistics_as_results, "its statistics are read"),
])  # fmt: skip
def test_a_norm_that_torch_would_not_capture_says_why_it_stays(edit: Any, reason: str) -> None:
    graph = hand_written_norm("aten.native_batch_norm.default", {"training": False}, 3)
    edit(graph)

    assert refusals(PassManager([ConvBnFolding]).run(graph)) == [reason]


def test_complex_convolutions_are_refused() -> None:
    graph = parse_ir(
        """
        graph complex {
          input %x: c64[2, 3, 6]
          param %w: c64[4, 3, 3]
          param %gamma: f32[4]
          param %beta: f32[4]
          param %mean: f32[4]
          param %var: f32[4]

          %y: c64[2, 4, 4] = aten.conv1d.default(input=%x, weight=%w)
          %z: c64[2, 4, 4] = aten.batch_norm.default(\
input=%y, weight=%gamma, bias=%beta, running_mean=%mean, running_var=%var) \
{training=False, momentum=0.1, eps=1e-05, cudnn_enabled=False}

          return %z
        }
        """
    )

    result = PassManager([ConvBnFolding]).run(graph)

    assert refusals(result) == ["the convolution computes c64[2, 4, 4], which is not real floating point"]
