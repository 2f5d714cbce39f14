"""1-d convolutions become 2-d ones, and what is between them works on images."""

import re
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from npu_runtime import IRExecutor
from tests.support.corpus.case import Holding
from tests.support.passes.cpu_cases import assert_computes, captured, ops, optimized, refusals

PASSES = "constant-folding,conv1d-to-conv2d"


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv1d(6, 4, 5, stride=2, padding=2),
        nn.Conv1d(6, 4, 3, padding=4, dilation=4, bias=False),
        nn.Conv1d(6, 6, 3, padding="same", groups=3),
        nn.Conv1d(6, 4, 3, padding="valid"),
        nn.Conv1d(6, 4, 1),
        nn.ConvTranspose1d(6, 4, 5, stride=3, padding=1, output_padding=2, dilation=2),
    ],
    ids=["stride", "dilation", "same", "valid", "pixel", "transposed"],
)
def test_a_convolution_is_one_of_images_one_pixel_high(layer: nn.Module) -> None:
    x = torch.randn(2, 6, 17)

    graph = optimized(layer, x, passes=PASSES)

    left = {re.sub("_transpose2d.input|2d.padding", "2d", name) for name in ops(graph)}
    assert left == {"conv2d", "squeeze.dim", "unsqueeze"}
    assert_computes(graph, layer, x)


@pytest.mark.parametrize(
    "between",
    [
        pytest.param(lambda m, y: y + F.silu(y) * 0.5, id="residual"),
        pytest.param(lambda m, y: F.max_pool1d(y, 3, 2, 1, ceil_mode=True), id="max pool"),
        pytest.param(lambda m, y: F.max_pool1d(y, 2), id="default stride"),
        pytest.param(lambda m, y: F.avg_pool1d(y, 3, 2, 1, count_include_pad=False), id="average pool"),
        pytest.param(lambda m, y: F.adaptive_avg_pool1d(y, 5), id="adaptive pool"),
        pytest.param(lambda m, y: F.pad(y, (2, 0), value=1.5), id="causal"),
        pytest.param(lambda m, y: torch.cat([F.relu(y), y], 1)[:, :6] * 2, id="some channels"),
        pytest.param(lambda m, y: torch.cat([y, m.row], 1), id="cat"),
        pytest.param(lambda m, y: torch.cat([y, y], 2), id="cat of time"),
        pytest.param(lambda m, y: y * m.column + m.row * m.scale, id="broadcast"),
        pytest.param(lambda m, y: F.prelu(y, m.slopes), id="slopes"),
        pytest.param(lambda m, y: F.batch_norm(y.relu(), m.mean, m.variance), id="norm"),
        pytest.param(lambda m, y: F.pad(y, (2, 1), mode="reflect"), id="reflected"),
        pytest.param(lambda m, y: y.transpose(1, 2).softmax(-1).transpose(1, 2), id="transposed"),
        pytest.param(lambda m, y: y - y.mean(2, keepdim=True), id="mean of time"),
        pytest.param(lambda m, y: torch.where(y > 0, y, y.cummax(2).values), id="two outputs"),
    ],
)  # fmt: skip
def test_what_is_between_convolutions_computes_the_same(
    between: Callable[[Holding, Tensor], Tensor],
) -> None:
    model = make_holding(between)
    x = torch.randn(2, 3, 16)

    graph = optimized(model, x, passes=PASSES)
    executor = IRExecutor(captured(model, x), model.state_dict(), passes="host", backend="auto")

    assert_computes(graph, model, x)
    torch.testing.assert_close(executor(x), model(x))
    assert executor(x).stride() == model(x).stride()


def make_holding(between: Callable[[Holding, Tensor], Tensor]) -> Holding:
    """Return a convolution to 6 channels, what is between, and a convolution to 2."""

    def forward(m: Holding, x: Tensor) -> Tensor:
        y = between(m, F.conv1d(x, m.first))
        return F.conv1d(y, m.last[:, : y.shape[1]])

    return Holding(
        forward,
        first=nn.Parameter(torch.randn(6, 3, 3)),
        last=nn.Parameter(torch.randn(2, 12, 2)),
        row=nn.Parameter(torch.randn(2, 6, 14)),
        column=nn.Parameter(torch.randn(6, 1)),
        scale=nn.Parameter(torch.randn(())),
        slopes=nn.Parameter(torch.rand(6)),
        mean=torch.randn(6),
        variance=torch.rand(6) + 0.5,
    )


@pytest.mark.parametrize(
    "between",
    [
        pytest.param(lambda m, y: F.relu(y) + y, id="residual"),
        pytest.param(lambda m, y: F.max_pool1d(F.pad(y, (2, 0)), 2), id="pool"),
        pytest.param(lambda m, y: torch.cat([y, y.tanh()], 1) * 2, id="cat"),
    ],
)
def test_signals_between_convolutions_are_images_all_along(
    between: Callable[[Holding, Tensor], Tensor],
) -> None:
    graph = optimized(make_holding(between), torch.randn(2, 3, 16), passes=PASSES)

    views = [
        node.op_type for node in graph.body if node.op_type in ("aten.squeeze.dim", "aten.unsqueeze.default")
    ]

    assert views == ["aten.unsqueeze.default", "aten.squeeze.dim"]  # of the input and of the result


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        pytest.param(lambda m, x: F.conv1d(x[0], m.w), "not a batch of signals", id="no batch"),
        pytest.param(lambda m, x: F.conv1d(x, x[:, :, :2]), "its weight %.* at each", id="no weight"),
        pytest.param(lambda m, x: F.conv1d(x.double(), m.w.double()), "f64", id="float64"),
    ],
)
def test_what_stays_has_the_reason(function: Callable[[Holding, Tensor], Tensor], reason: str) -> None:
    model = Holding(function, w=nn.Parameter(torch.randn(2, 3, 2)))

    (found,) = refusals(model, torch.randn(1, 3, 9), passes=PASSES)

    assert re.search(reason, found.reason), found


def test_the_pipeline_of_the_host_packs_convolutions_of_signals() -> None:
    layers = nn.Conv1d(3, 8, 3, padding=1), nn.BatchNorm1d(8), nn.ReLU(), nn.Conv1d(8, 4, 1)
    model, x = nn.Sequential(*layers).eval(), torch.randn(2, 3, 32)

    executor = IRExecutor(captured(model, x), model.state_dict(), passes="host", backend="host")

    assert ops(executor.graph)["npu.packed_conv2d"] == 2
    torch.testing.assert_close(executor(x), model(x))
