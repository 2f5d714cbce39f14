"""Pools and interpolation on the backend host, against PyTorch: whole calls and their gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hypothesis
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from npu_cuda.backend import HostBackend
from npu_ir import ExecutionError, extract_ir
from npu_runtime import IRExecutor, TrainStep
from tests.support.backends.host_checks import strides_of
from tests.support.corpus.case import Function
from tests.support.rows import each_row
from tests.support.tiers import examples, some

HOST = HostBackend()
FORMATS = {"first": torch.contiguous_format, "last": torch.channels_last}


def check_on_host(function: Callable[..., Any], x: Tensor) -> None:
    """Check that every node runs on the backend host, and returns what PyTorch does, in the same layout."""
    graph = extract_ir(Function(function), (x,))
    executor = IRExecutor(graph, {}, backend=HOST, passes=None)
    assert {item.backend for item in executor.lowered.ops} == {HOST.name}, executor.lowered

    actual, expected = executor(x), function(x)

    for one, other in zip(
        *((item,) if isinstance(item, Tensor) else item for item in (actual, expected)), strict=True
    ):
        torch.testing.assert_close(one, other, equal_nan=True)
        assert strides_of(one) == strides_of(other)


CALLS: dict[str, tuple[int, Callable[..., Any]]] = {
    "max_pool1d": (1, lambda x: F.max_pool1d(x, 3, 2, 1)),
    "max_pool1d, places": (1, lambda x: F.max_pool1d(x, 2, return_indices=True)),
    "max_pool2d": (2, lambda x: F.max_pool2d(x, 3, (2, 1), 1)),
    "max_pool2d, ceil": (2, lambda x: F.max_pool2d(x, 2, ceil_mode=True)),
    "max_pool2d, dilated": (2, lambda x: F.max_pool2d(x, 3, 1, 1, dilation=2)),
    "max_pool2d, places": (2, lambda x: F.max_pool2d(x, (3, 2), 2, 1, return_indices=True)),
    "max_pool2d, no batch": (2, lambda x: F.max_pool2d(x[0], 2)),
    "max_pool3d": (3, lambda x: F.max_pool3d(x, 2, 1, return_indices=True)),
    "adaptive_max_pool1d": (1, lambda x: F.adaptive_max_pool1d(x, 4)),
    "adaptive_max_pool2d": (2, lambda x: F.adaptive_max_pool2d(x, (3, 5), return_indices=True)),
    "adaptive_max_pool3d": (3, lambda x: F.adaptive_max_pool3d(x, 2)),
    "avg_pool1d": (1, lambda x: F.avg_pool1d(x, 3, 2, 1)),
    "avg_pool2d": (2, lambda x: F.avg_pool2d(x, 3, 2, 1)),
    "avg_pool2d, ceil": (2, lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True)),
    "avg_pool2d, ceil, without padding": (
        2,
        lambda x: F.avg_pool2d(x, 3, 2, 1, True, count_include_pad=False),
    ),
    "avg_pool2d, divisor": (2, lambda x: F.avg_pool2d(x, 2, divisor_override=3)),
    "avg_pool3d": (3, lambda x: F.avg_pool3d(x, (1, 2, 3), 2, (0, 1, 1), count_include_pad=False)),
    "adaptive_avg_pool1d": (1, lambda x: F.adaptive_avg_pool1d(x, 4)),
    "adaptive_avg_pool2d": (2, lambda x: F.adaptive_avg_pool2d(x, (3, None))),
    "adaptive_avg_pool2d, to one": (2, lambda x: F.adaptive_avg_pool2d(x, 1)),
    "adaptive_avg_pool3d": (3, lambda x: F.adaptive_avg_pool3d(x, 2)),
    "nearest1d": (1, lambda x: F.interpolate(x, scale_factor=2.5)),
    "nearest2d": (2, lambda x: F.interpolate(x, scale_factor=2)),
    "nearest2d, size": (2, lambda x: F.interpolate(x, size=(5, 17))),
    "nearest3d": (3, lambda x: F.interpolate(x, scale_factor=1.7)),
    "nearest-exact": (2, lambda x: F.interpolate(x, scale_factor=(1.3, 0.7), mode="nearest-exact")),
    "linear": (1, lambda x: F.interpolate(x, scale_factor=1.9, mode="linear")),
    "bilinear": (2, lambda x: F.interpolate(x, scale_factor=2.3, mode="bilinear")),
    "bilinear, size": (2, lambda x: F.interpolate(x, size=(4, 20), mode="bilinear")),
    "bilinear, aligned": (2, lambda x: F.interpolate(x, size=(4, 20), mode="bilinear", align_corners=True)),
    "trilinear": (3, lambda x: F.interpolate(x, size=(3, 9, 5), mode="trilinear")),
}


POOLS = {
    f"{name}, {dtype}, {layout}": (axes, call, dtype, layout)
    for dtype in (torch.float32, torch.float64)
    for name, (axes, call) in CALLS.items()
    for layout in (FORMATS if axes == 2 else ["first"])
}


@each_row("axes, call, dtype, layout", dict(some(list(POOLS.items()), len(POOLS) // 2)))
def test_pools_compute_what_they_do_in_pytorch(
    axes: int, call: Callable[..., Any], dtype: torch.dtype, layout: str
) -> None:
    torch.manual_seed(0)
    x = torch.randn((2, 20, 7, 9, 6)[: axes + 2], dtype=dtype)
    x[0, 3, 2] = float("nan")
    if axes == 2:
        x = x.contiguous(memory_format=FORMATS[layout])

    check_on_host(call, x)


@examples(30)
@given(st.data())
def test_nearest_elements_are_those_of_pytorch(data: st.DataObject) -> None:
    sizes = [data.draw(st.integers(1, 40)) for _ in range(2)]
    x = torch.randn(1, 2, *sizes)
    mode = data.draw(st.sampled_from(["nearest", "nearest-exact", "bilinear"]))
    if data.draw(st.booleans()):
        to: dict[str, Any] = {"size": [data.draw(st.integers(1, 80)) for _ in range(2)]}
    else:
        to = {"scale_factor": [data.draw(st.floats(1.0, 3.0)) for _ in range(2)]}
        scales = list(zip(sizes, to["scale_factor"], strict=True))
        hypothesis.assume(all(int(size * scale) not in (size, 2 * size) for size, scale in scales))

    check_on_host(lambda x: F.interpolate(x, mode=mode, **to), x)


@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("size", [(4, 4), (2, 7), (2, 4)])
def test_a_nan_stays_where_an_axis_keeps_its_size(size: tuple[int, int], align_corners: bool) -> None:
    x = torch.randn(1, 2, 2, 4)
    x[0, 0, 0, 2] = float("nan")

    check_on_host(lambda x: F.interpolate(x, size=size, mode="bilinear", align_corners=align_corners), x)


@pytest.mark.parametrize(
    ("scale", "backend"), [(1.02, "aten"), (2.03125, "aten"), (2.0, "host"), (3.02, "host")]
)
def test_a_scale_that_pytorch_reads_in_one_layout_alone_stays_with_aten(scale: float, backend: str) -> None:
    x = torch.randn(1, 8, 25, 27)
    function = Function(lambda x: F.interpolate(x, scale_factor=scale, mode="nearest"))

    for image in (x, x.contiguous(memory_format=torch.channels_last)):
        executor = IRExecutor(extract_ir(function, (image,)), {}, backend=HOST, passes=None)

        assert {item.backend for item in executor.lowered.ops} == {backend}
        assert torch.equal(executor(image), function(image))


@pytest.mark.parametrize("layout", FORMATS)
@pytest.mark.parametrize(
    "pool",
    [
        nn.MaxPool2d(3, 2, 1),
        nn.MaxPool2d(3, 2, 1, dilation=2),
        nn.AdaptiveMaxPool2d(3),
        nn.AvgPool2d(3, 2, 1, count_include_pad=False),
        nn.AdaptiveAvgPool2d((3, 2)),
        nn.Upsample(scale_factor=2),
        nn.Upsample(scale_factor=1.7, mode="bilinear"),
        nn.Upsample(size=(9, 5), mode="bilinear", align_corners=True),
    ],
    ids=str,
)
def test_pools_train_as_in_pytorch(pool: nn.Module, layout: str) -> None:
    torch.manual_seed(0)
    expected, actual = (nn.Sequential(nn.Conv2d(3, 20, 3, padding=1), pool) for _ in range(2))
    actual.load_state_dict(expected.state_dict())
    x = torch.randn(2, 3, 8, 7).contiguous(memory_format=FORMATS[layout])
    step = TrainStep(
        actual, torch.optim.SGD(actual.parameters(), lr=0.1), lambda y, _: y.square().mean(), backend=HOST
    )
    optimizer = torch.optim.SGD(expected.parameters(), lr=0.1)

    for _ in range(2):
        optimizer.zero_grad()
        loss = expected(x).square().mean()
        loss.backward()
        optimizer.step()
        torch.testing.assert_close(step(x, x), loss)

    for one, other in zip(actual.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(one, other)


def test_pools_of_integers_stay_with_aten() -> None:
    graph = extract_ir(Function(lambda x: F.max_pool2d(x, 2)), (torch.arange(32).reshape(1, 2, 4, 4),))

    assert "a tensor is int64, not a float" in str(HOST.supports(graph.nodes[0]))


@each_row("mode", ["nearest", "nearest-exact", "bilinear"])
def test_an_interpolation_to_no_elements_raises_the_error_of_pytorch(mode: str) -> None:
    x = torch.ones(1, 1, 2, 2)
    graph = extract_ir(Function(lambda x: F.interpolate(x, scale_factor=1 / 3, mode=mode)), (x,))

    with pytest.raises(ExecutionError, match="Input and output sizes should be greater than 0"):
        IRExecutor(graph, backend="host", passes=None)(x)
