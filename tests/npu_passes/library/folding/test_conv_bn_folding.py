"""Batch norms vanish into what is in front of them where they can, and say why where they cannot."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from npu_ir import Interpreter, execute_ir, extract_ir
from npu_passes import Checked, PassManager
from npu_passes.library.folding.conv_bn_folding import ConvBnFolding
from npu_passes.manager.checked_mode import relative_error
from npu_passes.testing import check_pass
from tests.support.passes.folding_cases import (
    FOLDING,
    NORM,
    Call,
    assert_computes,
    hand_written_norm,
    image,
    norms,
    op_types,
    run_passes,
    trained,
)

CONV = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
TRANSPOSED = {1: nn.ConvTranspose1d, 2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}


# What is folded


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no-bias"])
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("kind", [CONV, TRANSPOSED], ids=["conv", "transposed"])
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_a_norm_behind_a_convolution_is_folded(dims: int, kind: Any, groups: int, bias: bool) -> None:
    conv = kind[dims](4, 6, 3, stride=2, padding=1, groups=groups, bias=bias)
    model, x = trained(nn.Sequential(conv, NORM[dims](6))), image(4, dims)

    result = run_passes(model, [x])

    assert len(result.graph.body) == 1
    assert len(result.graph.body[0].inputs) == 3
    assert_computes(result.graph, model, [x])


def test_every_form_of_a_convolution_keeps_its_options(subtests: pytest.Subtests) -> None:
    rows = {
        "same": {"padding": "same"},
        "valid": {"padding": "valid"},
        "dilation": {"padding": 2, "dilation": 2},
        "two-strides": {"padding": (1, 0), "stride": (1, 2)},
        "circular": {"padding": 1, "padding_mode": "circular"},
        "reflect": {"padding": 1, "padding_mode": "reflect"},
        "depthwise": {"groups": 4},
    }
    for case, options in rows.items():
        with subtests.test(case):
            model, x = trained(nn.Sequential(nn.Conv2d(4, 8, 3, **options), nn.BatchNorm2d(8))), image(4)

            result = run_passes(model, [x])

            assert norms(result.graph) == 0
            assert_computes(result.graph, model, [x])


def test_a_transposed_convolution_keeps_its_options(subtests: pytest.Subtests) -> None:
    rows = {"output-padding": {"output_padding": 1, "stride": 2}, "dilation": {"dilation": 2, "groups": 3}}
    for case, options in rows.items():
        with subtests.test(case):
            model = trained(nn.Sequential(nn.ConvTranspose2d(6, 9, 3, **options), nn.BatchNorm2d(9)))
            x = image(6)

            result = run_passes(model, [x])

            assert norms(result.graph) == 0
            assert_computes(result.graph, model, [x])


def test_the_general_convolution_is_folded(subtests: pytest.Subtests) -> None:
    for transposed in [False, True]:
        for groups in [1, 2]:
            with subtests.test(transposed=transposed, groups=groups):
                shape = (4, 6 // groups, 3, 3) if transposed else (6, 4 // groups, 3, 3)

                def function(self: Any, x: Tensor) -> Tensor:
                    args = ([1, 1], [0, 0], [1, 1], transposed, [0, 0], groups)
                    return self.norm(torch.convolution(x, self.weight, None, *args))

                model = trained(
                    Call(function, weight=nn.Parameter(torch.randn(shape)), norm=nn.BatchNorm2d(6))
                )
                x = image(4)

                result = run_passes(model, [x])

                assert op_types(result.graph) == ["aten.convolution.default"]
                assert_computes(result.graph, model, [x])


def test_a_norm_behind_a_linear_layer_is_folded(subtests: pytest.Subtests) -> None:
    for bias in [True, False]:
        with subtests.test(bias=bias):
            model, x = (
                trained(nn.Sequential(nn.Linear(5, 7, bias=bias), nn.BatchNorm1d(7))),
                torch.randn(4, 5),
            )

            result = run_passes(model, [x])

            assert op_types(result.graph) == ["aten.linear.default"]
            assert_computes(result.graph, model, [x])


def test_affine_parameters_may_be_missing(subtests: pytest.Subtests) -> None:
    for has_weight, has_bias in list(itertools.product((False, True), repeat=2)):
        with subtests.test(has_weight=has_weight, has_bias=has_bias):

            def function(self: Any, x: Tensor) -> Tensor:
                norm = self.norm
                weight, bias = norm.weight if has_weight else None, norm.bias if has_bias else None
                return F.batch_norm(
                    self.conv(x), norm.running_mean, norm.running_var, weight, bias, False, 0.1, 1e-3
                )

            model = trained(Call(function, conv=nn.Conv2d(3, 4, 3), norm=nn.BatchNorm2d(4)))
            x = image(3)

            result = run_passes(model, [x])

            assert op_types(result.graph) == ["aten.conv2d.default"]
            assert_computes(result.graph, model, [x])


@pytest.mark.smoke
def test_a_norm_without_affine_parameters_is_folded() -> None:
    model, x = trained(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, affine=False))), image(3)

    result = run_passes(model, [x])

    assert op_types(result.graph) == ["aten.conv2d.default"]
    assert_computes(result.graph, model, [x])


def test_norms_that_were_decomposed_are_folded(subtests: pytest.Subtests) -> None:
    rows = [
        ("aten.native_batch_norm.default", {"training": False}, 3),
        ("aten._native_batch_norm_legit_no_training.default", {}, 3),
        ("aten._batch_norm_no_update.default", {}, 4),
    ]
    for op_type, attrs, outputs in rows:
        with subtests.test(op_type=op_type, attrs=attrs, outputs=outputs):
            graph = hand_written_norm(op_type, attrs, outputs)
            model = trained(nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4)))
            weights = {key: item for key, item in model.state_dict().items() if "tracked" not in key}
            x = torch.randn(2, 3, 6, 6)

            result = PassManager(FOLDING).run(graph)

            assert op_types(result.graph) == ["aten.conv2d.default"]
            assert relative_error(execute_ir(result.graph, [x], weights=weights), model(x)) < 1e-6


def test_a_weight_of_two_convolutions_is_folded_for_each() -> None:
    def function(self: Any, x: Tensor) -> Tensor:
        return self.one(self.conv(x)) + self.two(self.conv(x * 2))

    model = trained(Call(function, conv=nn.Conv2d(3, 4, 3), one=nn.BatchNorm2d(4), two=nn.BatchNorm2d(4)))
    x = image(3)

    result = run_passes(model, [x])

    assert norms(result.graph) == 0
    assert_computes(result.graph, model, [x])


def test_a_norm_of_two_convolutions_is_folded_into_each() -> None:
    def function(self: Any, x: Tensor) -> Tensor:
        return self.norm(self.one(x)) + self.norm(self.two(x))

    model = trained(Call(function, one=nn.Conv2d(3, 4, 3), two=nn.Conv2d(3, 4, 3), norm=nn.BatchNorm2d(4)))
    x = image(3)

    result = run_passes(model, [x])

    assert norms(result.graph) == 0
    assert_computes(result.graph, model, [x])


def test_weights_that_are_computed_from_parameters_are_folded() -> None:
    conv = nn.utils.parametrizations.weight_norm(nn.Conv2d(3, 4, 3))
    model, x = trained(nn.Sequential(conv, nn.BatchNorm2d(4))), image(3)

    result = run_passes(model, [x])

    assert op_types(result.graph) == ["aten.conv2d.default"]
    assert_computes(result.graph, model, [x])


def test_open_sizes_do_not_matter() -> None:
    model, x = trained(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))), image(3)
    batch = torch.export.Dim("batch", min=1, max=64)
    height = torch.export.Dim("height", min=4, max=64)

    result = run_passes(model, [x], dynamic_shapes=({0: batch, 2: height},))

    assert op_types(result.graph) == ["aten.conv2d.default"]
    assert_computes(result.graph, model, [torch.randn(5, 3, 9, 7)])


def test_channels_last_is_kept() -> None:
    model = trained(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()))
    model, x = model.to(memory_format=torch.channels_last), image(3).to(memory_format=torch.channels_last)

    result = run_passes(model, [x])

    assert op_types(result.graph) == ["aten.conv2d.default", "aten.relu.default"]
    actual = execute_ir(result.graph, [x], weights=model.state_dict())
    assert actual.stride() == model(x).stride()
    assert_computes(result.graph, model, [x])


def test_new_nodes_say_what_they_come_from() -> None:
    model, x = trained(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))), image(3)

    result = run_passes(model, [x], [ConvBnFolding])

    provenance = result.graph.nodes[-1].provenance
    assert (provenance.module, provenance.fused_from) == ("1", ("conv2d", "batch_norm"))
    (rewrite,) = result.journal.rewrites
    assert (rewrite.rule, rewrite.nodes) == ("conv-bn", ("conv2d", "batch_norm"))


def test_the_pass_keeps_its_promises() -> None:
    layers = [nn.Conv2d(3, 4, 3), nn.ConvTranspose2d(3, 4, 3, bias=False)]
    models = [trained(nn.Sequential(layer, nn.BatchNorm2d(4))) for layer in (*layers, nn.Conv2d(3, 4, 1))]
    models.append(nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)).train())

    assert check_pass(ConvBnFolding, [extract_ir(model, (image(3),)) for model in models]) == 3


def test_it_comes_before_what_builds_on_it() -> None:
    manager = PassManager("constant-folding,conv-add-folding,conv-bn-folding{fold_linear=false}")

    assert [str(item) for item in manager.passes] == [
        "conv-bn-folding{fold_linear=false}",
        "conv-add-folding",
        "constant-folding",
    ]


def test_the_model_and_its_graph_stay_as_they_are() -> None:
    model, x = trained(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))), image(3)
    graph = extract_ir(model, (x,))
    before, text = {name: item.clone() for name, item in model.state_dict().items()}, str(graph)

    result = PassManager(FOLDING).run(graph)
    execute_ir(result.graph, [x], weights=model.state_dict())

    assert str(graph) == text
    assert all(torch.equal(item, before[name]) for name, item in model.state_dict().items())


# Numerics


def test_results_are_within_what_is_promised(subtests: pytest.Subtests) -> None:
    for dtype in [torch.float64, torch.float32, torch.bfloat16, torch.float16]:
        for variance in [1e-6, 1.0, 1e4]:
            with subtests.test(dtype=dtype, variance=variance):
                model = trained(nn.Sequential(nn.Conv2d(16, 8, 3), nn.BatchNorm2d(8)))
                model[1].running_var.mul_(variance)
                model, x = model.to(dtype), image(16).to(dtype)

                result = run_passes(model, [x])

                assert op_types(result.graph) == ["aten.conv2d.default"]
                assert_computes(result.graph, model, [x])


def test_weights_are_computed_in_float64() -> None:
    model, x = trained(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))), image(3)
    conv, norm = (module.double() for module in (nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)))
    conv.load_state_dict(model[0].state_dict())
    norm.load_state_dict(model[1].state_dict())
    expected = nn.utils.fusion.fuse_conv_bn_eval(conv.eval(), norm.eval()).float()

    graph = run_passes(model, [x]).graph
    found: list[Tensor] = []

    Interpreter(graph, model.state_dict(), observe=lambda node, outputs: found.extend(outputs))

    assert any(item.equal(expected.weight) for item in found)
    assert any(item.dtype == torch.float32 and item.equal(expected.bias) for item in found)


def test_statistics_in_float32_behind_a_half_precision_convolution_keep_its_dtype() -> None:
    model = trained(nn.Sequential(nn.Conv2d(3, 4, 3).bfloat16(), nn.BatchNorm2d(4)))
    x = image(3).bfloat16()

    result = run_passes(model, [x])

    assert op_types(result.graph) == ["aten.conv2d.default"]
    actual = execute_ir(result.graph, [x], weights=model.state_dict())
    assert actual.dtype == torch.bfloat16
    assert relative_error(actual, model(x)) < 2e-2


# Whole networks


class Residual(nn.Module):
    def __init__(self, width: int, stride: int) -> None:
        super().__init__()
        inner = width * stride
        self.body = nn.Sequential(
            nn.Conv2d(width, inner, 3, stride, 1, bias=False),
            nn.BatchNorm2d(inner),
            nn.ReLU(),
            nn.Conv2d(inner, inner, 3, 1, 1, bias=False),
            nn.BatchNorm2d(inner),
        )
        self.skip = nn.Identity()
        if stride > 1:
            self.skip = nn.Sequential(nn.Conv2d(width, inner, 1, stride, bias=False), nn.BatchNorm2d(inner))

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.body(x) + self.skip(x))


def resnet() -> nn.Module:
    stem = [nn.Conv2d(3, 8, 7, 2, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    return nn.Sequential(*stem, Residual(8, 1), Residual(8, 2), Residual(16, 1), Residual(16, 2))


def inverted(width: int, out: int) -> nn.Module:
    inner = 4 * width
    return nn.Sequential(
        nn.Conv2d(width, inner, 1, bias=False),
        nn.BatchNorm2d(inner),
        nn.Hardswish(),
        nn.Conv2d(inner, inner, 5, 1, 2, groups=inner, bias=False),
        nn.BatchNorm2d(inner),
        nn.Hardswish(),
        nn.Conv2d(inner, out, 1, bias=False),
        nn.BatchNorm2d(out),
    )


def mobilenet() -> nn.Module:
    stem = [nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.Hardswish()]
    return nn.Sequential(*stem, inverted(8, 8), inverted(8, 16), inverted(16, 16))


def test_every_norm_of_a_network_is_folded(subtests: pytest.Subtests) -> None:
    for make, count in [(resnet, 11), (mobilenet, 10)]:
        with subtests.test(make=make, count=count):
            model, x = trained(make()), torch.randn(2, 3, 32, 32)
            graph = extract_ir(model, (x,))

            result = PassManager.of_pipeline("default", checked=Checked()).run(graph)

            assert (norms(graph), norms(result.graph)) == (count, 0)
            assert result.converged
            assert_computes(result.graph, model, [x])
