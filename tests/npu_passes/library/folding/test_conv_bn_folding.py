"""Batch norms vanish into what is in front of them where they can."""

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from npu_ir import Interpreter, execute_ir, extract_ir
from npu_passes import PassManager
from npu_passes.library.folding.conv_bn_folding import ConvBnFolding
from npu_passes.manager.checked_mode import relative_error
from npu_passes.testing import check_pass
from tests.support.corpus.case import Holding
from tests.support.passes.folding_cases import (
    FOLDING,
    NORM,
    assert_computes,
    hand_written_norm,
    image,
    norms,
    op_types,
    run_passes,
    trained,
)
from tests.support.rows import each_row

CONV2D = "aten.conv2d.default"
CONV = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
TRANSPOSED = {1: nn.ConvTranspose1d, 2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}


def conv_norm() -> nn.Module:
    return trained(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)))


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


def layers() -> Iterator[tuple[nn.Module, Tensor]]:
    """Yield layers in front of a norm, with their options and an input."""
    for options in (
        {"padding": "same"},
        {"padding": "valid"},
        {"padding": 2, "dilation": 2},
        {"padding": (1, 0), "stride": (1, 2)},
        {"padding": 1, "padding_mode": "circular"},
        {"groups": 4},
    ):
        yield nn.Conv2d(4, 8, 3, **options), image(4)
    yield nn.ConvTranspose2d(6, 8, 3, output_padding=1, stride=2), image(6)
    yield nn.ConvTranspose2d(6, 8, 3, dilation=2, groups=2), image(6)
    yield nn.utils.parametrizations.weight_norm(nn.Conv2d(4, 8, 3)), image(4)
    yield nn.Linear(5, 8), torch.randn(4, 5)
    yield nn.Linear(5, 8, bias=False), torch.randn(4, 5)


def test_a_layer_keeps_its_options(subtests: pytest.Subtests) -> None:
    for layer, x in layers():
        with subtests.test(layer=layer):
            norm = nn.BatchNorm1d(8) if x.dim() == 2 else nn.BatchNorm2d(8)
            model = trained(nn.Sequential(layer, norm))

            result = run_passes(model, [x])

            assert norms(result.graph) == 0
            assert_computes(result.graph, model, [x])


@each_row("transposed, groups", itertools.product([False, True], [1, 2]))
def test_the_general_convolution_is_folded(transposed: Any, groups: Any) -> None:
    shape = (4, 6 // groups, 3, 3) if transposed else (6, 4 // groups, 3, 3)
    args = ([1, 1], [0, 0], [1, 1], transposed, [0, 0], groups)
    model = Holding(
        lambda self, x: self.norm(torch.convolution(x, self.weight, None, *args)),
        weight=nn.Parameter(torch.randn(shape)),
        norm=nn.BatchNorm2d(6),
    )
    x = image(4)

    result = run_passes(trained(model), [x])

    assert op_types(result.graph) == ["aten.convolution.default"]
    assert_computes(result.graph, model, [x])


@each_row("has_weight, has_bias", itertools.product((False, True), repeat=2))
def test_affine_parameters_may_be_missing(has_weight: Any, has_bias: Any) -> None:
    def function(self: Any, x: Tensor) -> Tensor:
        norm = self.norm
        weight, bias = norm.weight if has_weight else None, norm.bias if has_bias else None
        return F.batch_norm(self.conv(x), norm.running_mean, norm.running_var, weight, bias, False, 0.1, 1e-3)

    model = trained(Holding(function, conv=nn.Conv2d(3, 4, 3), norm=nn.BatchNorm2d(4)))
    x = image(3)

    result = run_passes(model, [x])

    assert op_types(result.graph) == [CONV2D]
    assert_computes(result.graph, model, [x])


@each_row("op_type, attrs, outputs", [
    ("aten.native_batch_norm.default", {"training": False}, 3),
    ("aten._native_batch_norm_legit_no_training.default", {}, 3),
    ("aten._batch_norm_no_update.default", {}, 4),
])  # fmt: skip
def test_norms_that_were_decomposed_are_folded(op_type: str, attrs: Any, outputs: int) -> None:
    graph = hand_written_norm(op_type, attrs, outputs)
    model = trained(nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4)))
    weights = {key: item for key, item in model.state_dict().items() if "tracked" not in key}
    x = torch.randn(2, 3, 6, 6)

    result = PassManager(FOLDING).run(graph)

    assert op_types(result.graph) == [CONV2D]
    assert relative_error(execute_ir(result.graph, [x], weights=weights), model(x)) < 1e-6


@each_row("function", {
    "weight": (lambda self, x: self.norm(self.conv(x)) + self.other_norm(self.conv(x * 2))),
    "norm": (lambda self, x: self.norm(self.conv(x)) + self.norm(self.other_conv(x))),
})  # fmt: skip
def test_what_two_layers_share_is_folded_for_each(function: Any) -> None:
    convs = {"conv": nn.Conv2d(3, 4, 3), "other_conv": nn.Conv2d(3, 4, 3)}
    model = Holding(function, **convs, norm=nn.BatchNorm2d(4), other_norm=nn.BatchNorm2d(4))
    x = image(3)

    result = run_passes(trained(model), [x])

    assert norms(result.graph) == 0
    assert_computes(result.graph, model, [x])


def test_open_sizes_do_not_matter() -> None:
    model = conv_norm()
    batch = torch.export.Dim("batch", min=1, max=64)
    height = torch.export.Dim("height", min=4, max=64)

    result = run_passes(model, [image(3)], dynamic_shapes=({0: batch, 2: height},))

    assert op_types(result.graph) == [CONV2D]
    assert_computes(result.graph, model, [torch.randn(5, 3, 9, 7)])


def test_channels_last_is_kept() -> None:
    model, x = (item.to(memory_format=torch.channels_last) for item in (conv_norm(), image(3)))

    result = run_passes(model, [x])

    assert op_types(result.graph) == [CONV2D]
    actual = execute_ir(result.graph, [x], weights=model.state_dict())
    assert actual.stride() == model(x).stride()


@pytest.mark.smoke
def test_the_pass_keeps_its_promises() -> None:
    convs = [nn.Conv2d(3, 4, 3), nn.ConvTranspose2d(3, 4, 3, bias=False), nn.Conv2d(3, 4, 1)]
    models = [trained(nn.Sequential(conv, nn.BatchNorm2d(4))) for conv in convs]
    models.append(nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)).train())

    assert check_pass(ConvBnFolding, [extract_ir(model, (image(3),)) for model in models]) == 3


def test_it_comes_before_what_builds_on_it() -> None:
    manager = PassManager("constant-folding,conv-add-folding,conv-bn-folding{fold_linear=false}")

    assert [str(item) for item in manager.passes] == [
        "conv-bn-folding{fold_linear=false}",
        "conv-add-folding",
        "constant-folding",
    ]


def test_results_are_within_what_is_promised(subtests: pytest.Subtests) -> None:
    dtypes = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
    for dtype, variance in [*((dtype, 1.0) for dtype in dtypes), (torch.float32, 1e-6), (torch.float16, 1e4)]:
        with subtests.test(dtype=dtype, variance=variance):
            model = trained(nn.Sequential(nn.Conv2d(16, 8, 3), nn.BatchNorm2d(8)))
            model[1].running_var.mul_(variance)
            model, x = model.to(dtype), image(16).to(dtype)

            result = run_passes(model, [x])

            assert op_types(result.graph) == [CONV2D]
            assert_computes(result.graph, model, [x])


def test_weights_are_computed_in_float64() -> None:
    model, x = conv_norm(), image(3)
    conv, norm = (module.double() for module in (nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)))
    conv.load_state_dict(model[0].state_dict())
    norm.load_state_dict(model[1].state_dict())
    expected = nn.utils.fusion.fuse_conv_bn_eval(conv.eval(), norm.eval()).float()
    found: list[Tensor] = []

    graph = run_passes(model, [x]).graph
    Interpreter(graph, model.state_dict(), observe=lambda node, outputs: found.extend(outputs))

    assert any(item.equal(expected.weight) for item in found)
    assert any(item.dtype == torch.float32 and item.equal(expected.bias) for item in found)


def test_statistics_in_float32_behind_a_half_precision_convolution_keep_its_dtype() -> None:
    model = trained(nn.Sequential(nn.Conv2d(3, 4, 3).bfloat16(), nn.BatchNorm2d(4)))
    x = image(3).bfloat16()

    result = run_passes(model, [x])

    assert op_types(result.graph) == [CONV2D]
    actual = execute_ir(result.graph, [x], weights=model.state_dict())
    assert actual.dtype == torch.bfloat16
    assert relative_error(actual, model(x)) < 2e-2
