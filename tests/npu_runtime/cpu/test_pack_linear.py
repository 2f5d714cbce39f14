"""Large linear layers become oneDNN's, with weights that are packed when they are bound."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from npu_passes import PassError
from npu_passes.testing import check_pass
from npu_runtime.cpu.pack_linear import PackLinear
from tests.support.corpus.case import Holding
from tests.support.passes.cpu_cases import ACTIVATIONS, assert_computes, captured, ops, optimized, refusals
from tests.support.rows import each_row

PASSES = "constant-folding,pack-linear"
LINEAR = "mkldnn._linear_pointwise"


def behind(function: Any, **options: Any) -> Holding:
    return Holding(lambda self, x: function(self.linear(x), x), linear=nn.Linear(256, 512, **options))


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no-bias"])
@pytest.mark.parametrize("shape", [(128, 256), (2, 64, 256), (2, 2, 32, 256)], ids=["2d", "3d", "4d"])
@each_row("function, attr", ACTIVATIONS)
def test_an_activation_is_computed_with_the_layer(
    function: Any, attr: Any, bias: bool, shape: tuple[int, ...]
) -> None:
    model = behind(lambda y, x, function=function: function(y), bias=bias)
    x = torch.randn(shape) * (20 if function is F.relu6 else 1)  # beyond 6

    graph = optimized(model, x, passes=PASSES)

    assert ops(graph) == {LINEAR: 1}
    assert graph.body[0].attrs["attr"] == attr
    assert_computes(graph, model, x)


@pytest.mark.parametrize("function", [lambda y, x: F.elu(y), lambda y, x: F.relu(y) + y])
def test_what_onednn_does_not_fuse_stays_behind(function: Any) -> None:
    model, x = behind(function), torch.randn(128, 256)

    graph = optimized(model, x, passes=PASSES)

    assert ops(graph)[LINEAR] == 1
    assert len(graph.body) > 1
    assert_computes(graph, model, x)


@pytest.mark.parametrize("stride", [0, 2])
@pytest.mark.parametrize("is_weight", [True, False])
def test_a_bias_in_other_strides_is_right(stride: int, is_weight: bool) -> None:
    bias, x = torch.randn(1024).as_strided([512], [stride]), torch.randn(128, 256)
    model: nn.Module = behind(lambda y, x: F.relu(y))
    args: tuple[Any, ...] = (x,)
    if is_weight:
        model.linear.bias = nn.Parameter(bias)
    else:
        model = Holding(lambda self, x, bias: F.linear(x, self.linear.weight, bias), linear=model.linear)
        args = x, bias

    graph = optimized(model, *args, passes=PASSES)

    assert ops(graph)[LINEAR] == 1
    assert_computes(graph, model, *args)


def test_an_input_in_other_strides_is_right() -> None:
    model, x = behind(lambda y, x: F.relu(y)), torch.randn(256, 128).t()

    graph = optimized(model, x, passes=PASSES)

    assert_computes(graph, model, x)


def test_addmm_with_a_weight_that_is_turned_is_packed() -> None:
    model = Holding(lambda self, x: F.gelu(torch.addmm(self.bias, x, self.weight)))
    model.weight, model.bias = nn.Parameter(torch.randn(256, 512)), nn.Parameter(torch.randn(512))
    x = torch.randn(128, 256)

    graph = optimized(model, x, passes=PASSES)

    assert ops(graph) == {LINEAR: 1}
    assert_computes(graph, model, x)


@each_row("batch, size, is_packed", {
    "tiny": (1, 64, False),
    "small": (64, 64, False),
    "middle": (64, 256, False),
    "many-rows": (128, 256, True),
    "one-row": (1, 768, False),
    "large-weight": (4, 512, True),
})  # fmt: skip
def test_layers_that_are_too_small_are_left(batch: int, size: int, is_packed: bool) -> None:
    graph = captured(nn.Linear(size, size), torch.randn(batch, size))

    assert check_pass(PackLinear(), graph) == is_packed


def test_what_is_left_has_a_reason(subtests: pytest.Subtests) -> None:
    rows = [
        (nn.Linear(16, 16), [torch.randn(4, 16)], "1024 multiplications are too few"),
        (nn.Linear(256, 512).bfloat16(), [torch.randn(128, 256).bfloat16()], "float32"),
        (nn.Linear(4096, 4096), [torch.randn(4096)], "not a product with a matrix"),
        (Holding(lambda self, x, w: F.linear(x, w)), [torch.randn(128, 256), torch.randn(512, 256)],
            "is an input, or is updated"),
        (Holding(lambda self, x, w: F.linear(x, w.exp())), [torch.randn(128, 256), torch.randn(512, 256)],
            "is computed at each call"),
        (Holding(lambda self, b, x, w: torch.addmm(b, x, w, alpha=2)),
            [torch.randn(512), torch.randn(128, 256), torch.randn(256, 512)],
            "it scales the product or the bias"),
        (Holding(lambda self, b, x, w: torch.addmm(b, x, w)),
            [torch.randn(128, 512), torch.randn(128, 256), torch.randn(256, 512)], "not a vector"),
        (nn.Linear(256, 512), [torch.randn(0, 256)], "is empty"),
    ]  # fmt: skip
    for model, args, reason in rows:
        with subtests.test(model=model, args=args, reason=reason):
            found = refusals(model, *args, passes="pack-linear")

            assert len(found) == 1
            assert reason in found[0].reason


def test_the_limit_is_an_option() -> None:
    model, x = nn.Linear(16, 16), torch.randn(4, 16)

    graph = optimized(model, x, passes="pack-linear{min_products=1}")

    assert ops(graph) == {LINEAR: 1}
    assert_computes(graph, model, x)
    with pytest.raises(PassError, match="'min_products' of pack-linear is a number of products, not -1"):
        PackLinear(min_products=-1)
