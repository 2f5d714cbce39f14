"""Convolutions in channels-last become oneDNN's, with weights that are packed when they are bound."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from npu_ir import InputKind, extract_ir
from npu_passes import PassManager
from npu_passes.testing import check_pass
from npu_runtime.cpu import onednn
from npu_runtime.cpu.pack_convolution import PackConvolution
from tests.support.corpus.case import Holding
from tests.support.passes.cpu_cases import (
    ACTIVATIONS,
    assert_computes,
    captured,
    image,
    last,
    ops,
    optimized,
    refusals,
)
from tests.support.rows import each_row

PASSES = "constant-folding,pack-convolution{fuse_add=true}"
CONV, CONV_ADD = "mkldnn._convolution_pointwise", "mkldnn._convolution_pointwise.binary"
WIDE = 64


def behind(function: Any, **options: Any) -> Holding:
    """Return a convolution with a function behind it, which gets the input, too."""
    conv = nn.Conv2d(WIDE, WIDE, 3, padding=1, **options)
    return Holding(lambda self, x: function(self.conv(x), x), conv=conv)


@pytest.mark.parametrize("stride", [0, 2])
def test_a_bias_in_other_strides_is_right(stride: int) -> None:
    model, x = behind(lambda y, x: F.relu(y)), last(image(WIDE, 28))
    model.conv.bias = nn.Parameter(torch.randn(2 * WIDE).as_strided([WIDE], [stride]))

    graph = optimized(model, x, passes=PASSES)

    assert ops(graph)[CONV] == 1
    assert_computes(graph, model, x)


def _transposed(self: Any, x: Tensor) -> Tensor:
    return torch.convolution(x, self.conv.weight, None, [1, 1], [0, 0], [1, 1], True, [0, 0], 1)


@pytest.mark.parametrize("bias", [True, False])
@each_row("function, attr", ACTIVATIONS)
def test_an_activation_is_computed_with_the_convolution(function: Any, attr: Any, bias: bool) -> None:
    model = behind(lambda y, x, function=function: function(y), bias=bias)
    x = last(10 * image(WIDE, 28))  # beyond the 6 of relu6

    graph = optimized(model, x, passes=PASSES)

    assert ops(graph) == {CONV: 1}
    assert graph.body[0].attrs["attr"] == attr
    assert_computes(graph, model, x)


@each_row("function", {
    "add": (lambda y, x: y + x),
    "add-to": (lambda y, x: x + y),
    "add-relu": (lambda y, x: F.relu(x + y)),
    "relu": (lambda y, x: F.relu(y + x)),
})  # fmt: skip
def test_a_sum_and_a_relu_are_computed_with_the_convolution(function: Any) -> None:
    model, x = behind(function), last(image(WIDE, 28))

    graph = optimized(model, x, passes=PASSES)

    assert ops(graph) == {CONV_ADD: 1}
    assert_computes(graph, model, x)


@each_row("function, expected", {
    "gelu-of-sum": (lambda y, x: F.gelu(y + x), {CONV_ADD: 1, "gelu": 1}),
    "scaled": (lambda y, x: torch.add(y, x, alpha=2), {CONV: 1, "add.Tensor": 1}),
    "number": (lambda y, x: y + 1.5, {CONV: 1, "add.Tensor": 1}),
    "itself": (lambda y, x: y + y, {CONV: 1, "add.Tensor": 1}),
    "broadcast": (lambda y, x: y + x[:, :1], {CONV: 1, "add.Tensor": 1}),
    "layout": (lambda y, x: y + x.contiguous(), {CONV: 1, "add.Tensor": 1}),
    "result": (lambda y, x: (y, F.relu(y)), {CONV: 1, "relu": 1}),
    "read-twice": (lambda y, x: F.relu(y) * y.exp(), {CONV: 1, "relu": 1, "exp": 1}),
    "unknown": (lambda y, x: F.elu(y), {CONV: 1, "elu": 1}),
})  # fmt: skip
def test_what_onednn_does_not_fuse_stays_behind(function: Any, expected: Any) -> None:
    model, x = behind(function), last(image(WIDE, 28))

    graph = optimized(model, x, passes=PASSES)

    found = ops(graph)
    assert {name: found[name] for name in expected} == expected
    assert_computes(graph, model, x)


def test_sums_are_left_by_default() -> None:
    model, x = behind(lambda y, x: F.relu(y + x)), last(image(WIDE, 28))

    graph = optimized(model, x, passes="pack-convolution")

    assert ops(graph) == {CONV: 1, "add.Tensor": 1, "relu": 1}
    assert_computes(graph, model, x)


@pytest.mark.parametrize(("model", "args", "reason"), [
    pytest.param(nn.Conv2d(WIDE, WIDE, 3), [image(WIDE, 28)], "not in channels-last", id="contiguous"),
    pytest.param(nn.Conv2d(16, 16, 3), [last(image(16, 8))], "too few to pay for the call", id="small"),
    pytest.param(Holding(_transposed, conv=nn.Conv2d(WIDE, WIDE, 3)), [last(image(WIDE, 28))],
        "it is a transposed convolution", id="transposed"),
    pytest.param(nn.Conv2d(WIDE, WIDE, 3), [image(WIDE, 28)[0]], "not a batch of images", id="no-batch"),
    pytest.param(nn.Conv2d(WIDE, WIDE, 3).bfloat16(), [last(image(WIDE, 28)).bfloat16()], "float32",
        id="bfloat16"),
    pytest.param(nn.Conv2d(WIDE, WIDE, (4, 3), padding="same"), [last(image(WIDE, 28))],
        "more zeros on one side than on the other", id="uneven",
        marks=pytest.mark.filterwarnings("ignore:Using padding='same'")),
    pytest.param(Holding(lambda self, x, w: F.conv2d(x, w, padding=1)),
        [last(image(WIDE, 28)), torch.randn(WIDE, WIDE, 3, 3)], "is an input, or is updated",
        id="given-weight"),
])  # fmt: skip
def test_what_is_left_has_a_reason(model: nn.Module, args: list[Tensor], reason: str) -> None:
    (found,) = refusals(model, *args, passes=PASSES)

    assert reason in found.reason


def test_a_weight_that_is_computed_in_the_body_waits_for_constant_folding() -> None:
    model = behind(lambda y, x: y)
    model.function = lambda self, x: F.conv2d(x, self.conv.weight * 2, padding=1)

    found = refusals(model, last(image(WIDE, 28)), passes="pack-convolution")

    assert "in the body: run constant-folding first" in found[0].reason


def test_an_open_batch_is_left() -> None:
    batch = torch.export.Dim("batch", min=1, max=8)
    x = last(image(WIDE, 28, batch=2))
    graph = extract_ir(nn.Conv2d(WIDE, WIDE, 3).eval(), (x,), dynamic_shapes=[{0: batch}])

    result = PassManager("pack-convolution").run(graph)

    assert "what is fastest depends on sizes" in result.journal.refusals[0].reason


def test_the_pass_keeps_its_promises() -> None:
    x = last(image(WIDE, 28))
    graphs = [
        captured(behind(lambda y, x: F.relu(y + x)), x),
        captured(behind(lambda y, x: F.relu(y)), x),
        captured(nn.Conv2d(16, 16, 3), last(image(16, 8))),
    ]

    assert check_pass(PackConvolution(), graphs) == 2


def test_a_weight_that_two_convolutions_share_is_packed_for_each() -> None:
    def twice(self: Any, x: Tensor) -> Any:
        return self.conv(F.max_pool2d(self.conv(x), 2))

    model, x = Holding(twice, conv=nn.Conv2d(WIDE, WIDE, 3, padding=1)), last(image(WIDE, 56))

    graph = optimized(model, x, passes=PASSES)

    assert ops(graph)[CONV] == 2
    packed = [node.inputs[0].argument for node in graph.nodes_of(onednn.PACK_CONVOLUTION)]
    assert [item and item.kind for item in packed] == [InputKind.PARAMETER] * 2
    assert_computes(graph, model, x)


def test_an_operator_that_pytorch_lacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onednn, "find_op", lambda name: None)

    assert onednn.unavailable_reason() == "PyTorch has no operator mkldnn._reorder_convolution_weight.default"


def test_a_pytorch_without_onednn_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)

    assert onednn.unavailable_reason() == "PyTorch is built without oneDNN"
