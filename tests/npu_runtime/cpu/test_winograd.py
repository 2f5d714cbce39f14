"""Winograd's algorithm computes what the convolution does, in fewer multiplications."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from npu_ir import Graph, Interpreter
from npu_passes import PassManager
from npu_passes.ops.winograd import POINTS, matrices
from npu_passes.testing import check_pass
from npu_runtime.cpu.winograd import Winograd
from tests.support.passes.cpu_cases import (
    Residual,
    assert_computes,
    captured,
    image,
    last,
    ops,
    optimized,
    refusals,
)
from tests.support.rows import each_row

PASSES = "constant-folding,winograd"


def tiles(graph: Graph) -> set[str]:
    return {name for name in graph.constants if name.endswith("patch")}


@each_row("tile", sorted(POINTS))
def test_the_matrices_compute_a_convolution_of_one_tile(tile: Any) -> None:
    of_patch, of_kernel, of_result = matrices(tile)
    patch, kernel = torch.randn(tile + 2, tile + 2).double(), torch.randn(3, 3).double()

    result = of_result @ ((of_kernel @ kernel.reshape(9)) * (of_patch @ patch.reshape(-1)))

    wanted = F.conv2d(patch[None, None], kernel[None, None]).reshape(-1)
    assert torch.allclose(result, wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("channels", "out", "size", "padding", "batch"), [
    pytest.param(64, 64, (56, 56), 1, 1, id="whole-tiles"),
    pytest.param(64, 64, (57, 57), 1, 1, id="tiles-that-are-cut"),
    pytest.param(64, 96, (40, 40), 0, 1, id="no-padding"),
    pytest.param(96, 64, (30, 30), 2, 2, id="more-padding"),
    pytest.param(128, 128, (28, 35), (0, 1), 1, id="two-sizes"),
    pytest.param(128, 128, (14, 14), 1, 3, id="batch"),
    pytest.param(256, 256, (14, 14), 1, 1, id="tiles-of-2"),
])  # fmt: skip
def test_a_large_convolution_becomes_products_of_matrices(
    channels: int, out: int, size: tuple[int, int], padding: Any, batch: int, bias: bool
) -> None:
    model = nn.Conv2d(channels, out, 3, padding=padding, bias=bias)
    x = last(torch.randn(batch, channels, *size))
    graph = captured(model, x)

    assert check_pass(Winograd(), graph) == 1

    made = PassManager(PASSES).run(graph).graph
    found = ops(made)
    assert (found["mm"], found["bmm"], found["conv2d"]) == (2, 1, 0)
    assert_computes(made, model, x)


def test_the_tile_is_chosen_by_size() -> None:
    of_4 = optimized(nn.Conv2d(64, 64, 3, padding=1), last(image(64, 56)), passes=PASSES)
    of_2 = optimized(nn.Conv2d(256, 256, 3, padding=1), last(image(256, 14)), passes=PASSES)

    assert tiles(of_4) == {"winograd.4.patch"}
    assert tiles(of_2) == {"winograd.2.patch"}


def test_weights_are_transformed_when_they_are_bound_and_matrices_shared() -> None:
    model, x = Residual(128), last(image(128, 28))

    graph = optimized(model, x, passes=PASSES)

    assert set(graph.constants) == {f"winograd.4.{kind}" for kind in ("patch", "kernel", "result")}
    assert [node.op_type for node in graph.prologue].count("aten.mm.default") == 2
    assert_computes(graph, model, x)
    other = Residual(128)
    assert_computes(graph, other, x, weights=other.state_dict())


def test_what_is_left_has_a_reason(subtests: pytest.Subtests) -> None:
    rows = [
        (nn.Conv2d(64, 64, 5), last(image(64, 56)), "not a 3 x 3 convolution"),
        (nn.Conv2d(64, 64, 3, stride=2), last(image(64, 56)), "of stride 1"),
        (nn.Conv2d(64, 64, 3, dilation=2), last(image(64, 56)), "not a 3 x 3 convolution"),
        (nn.Conv2d(64, 64, 3, groups=2), last(image(64, 56)), "not a 3 x 3 convolution"),
        (nn.Conv2d(8, 8, 3), last(image(8, 56)), "not large enough"),
        (nn.Conv2d(512, 512, 3, padding=1), last(image(512, 7)), "not large enough"),
        (nn.Conv2d(64, 64, 3), image(64, 56), "not in channels-last"),
        (nn.Conv2d(64, 64, 3).double(), last(image(64, 56)).double(), "float32"),
    ]
    for model, x, reason in rows:
        with subtests.test(model=model, x=x, reason=reason):
            found = refusals(model, x, passes="winograd")

            assert len(found) == 1
            assert reason in found[0].reason


def test_an_infinity_stays_in_the_tiles_that_it_is_in() -> None:
    model, x = nn.Conv2d(64, 64, 3, padding=1), last(image(64, 56))
    x[0, 0, 10, 10] = float("inf")

    found = Interpreter(optimized(model, x, passes=PASSES), model.state_dict()).run(x)

    is_finite = found.isfinite().all(dim=1)[0]
    assert not is_finite[8:12, 8:12].any()
    assert is_finite[16:].all()
