"""Ops whose threads have slices of a workspace: as many items as keep all of them busy, an odd number."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import npu_cuda
from npu_cuda import _C, attrs
from npu_passes.ops.winograd import winograd_panels

Run = Callable[[], Tensor]


def image(channels: int, size: int) -> Tensor:
    return torch.randn(1, channels, size, size).to(memory_format=torch.channels_last)


def call(kind: str, inputs: list[Tensor], like: Tensor, schema: str, **fields: float) -> Tensor:
    result = torch.full_like(like, float("nan"))
    npu_cuda.op_call(npu_cuda.kinds()[kind], inputs, [result], *attrs(schema, **fields))
    return result


def convolution(channels: int, size: int, outputs: int, groups: int = 1) -> tuple[Run, Tensor]:
    x, weight = image(channels, size), torch.randn(outputs, channels // groups, 3, 3)
    expected = F.conv2d(x, weight, padding=1, groups=groups)
    fields = {"padding_h": 1, "padding_w": 1, "groups": groups}
    return lambda: call("Conv", [x, weight], expected, "CONV", **fields), expected


def winograd(channels: int, size: int) -> tuple[Run, Tensor]:
    x, weight = image(channels, size), torch.randn(channels, channels, 3, 3)
    expected, panels = F.conv2d(x, weight, padding=1), winograd_panels(weight, 4)[None]
    fields = {"padding_h": 1, "padding_w": 1, "kernel_h": 3, "kernel_w": 3, "winograd_tile": 4}
    return lambda: call("PackedConv", [x, panels], expected, "CNVP", **fields), expected


def attention(heads: int, queries: int, keys: int) -> tuple[Run, Tensor]:
    q, k, v = (torch.randn(1, heads, rows, 64) for rows in (queries, keys, keys))
    expected = F.scaled_dot_product_attention(q, k, v)
    return lambda: call("Attention", [q, k, v], expected, "ATTN"), expected


def largest_of_windows(channels: int, size: int) -> tuple[Run, Tensor]:
    x = image(channels, size)
    expected = F.max_pool2d(x, 3, 1, 1)
    fields = {"kernel_h": 3, "kernel_w": 3, "padding_h": 1, "padding_w": 1}
    return lambda: call("MaxPool", [x], expected, "MAXP", **fields), expected


@pytest.mark.parametrize(("make", "sizes"), [
    pytest.param(convolution, (64, 57, 64), id="convolution"),
    pytest.param(convolution, (64, 14, 320), id="convolution of few bands"),
    pytest.param(convolution, (64, 17, 16), id="convolution of a small image"),
    pytest.param(convolution, (96, 57, 96, 96), id="depthwise convolution"),
    pytest.param(winograd, (128, 28), id="Winograd's algorithm"),
    pytest.param(attention, (7, 197, 197), id="attention"),
    pytest.param(attention, (7, 1, 3000), id="attention of one query"),
    pytest.param(largest_of_windows, (64, 57), id="pool"),
])  # fmt: skip
@pytest.mark.usefixtures("threads")
def test_threads_that_have_slices_compute_what_one_does(
    make: Callable[..., tuple[Run, Tensor]], sizes: tuple[int, ...]
) -> None:
    torch.manual_seed(0)
    run, expected = make(*sizes)
    _C.set_thread_count(1)
    alone = run()
    torch.testing.assert_close(alone, expected, rtol=1e-3, atol=1e-3)

    for count in (2, 3, 5):
        _C.set_thread_count(count)
        for _ in range(5):
            torch.testing.assert_close(run(), alone, rtol=0, atol=0)
