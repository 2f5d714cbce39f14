"""Convolutions on the backend ``host``, and their gradients, beside PyTorch's."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from npu_ir import extract_ir
from npu_runtime import IRExecutor
from tests.support.backends.host_checks import check_on_host, check_training_on_host
from tests.support.backends.native_backends import HOST
from tests.support.corpus.case import Function
from tests.support.tiers import examples

CALLS = {
    "conv1d": (lambda x, w: F.conv1d(x, w, stride=2, padding=3), (2, 6, 20), (4, 6, 5)),
    "conv2d, one number for both axes": (lambda x, w: F.conv2d(x, w, padding=1), (2, 6, 9, 8), (4, 6, 3, 3)),
    "conv2d, valid": (lambda x, w: F.conv2d(x, w, padding="valid"), (2, 6, 9, 8), (4, 6, 3, 3)),
    "conv2d, groups": (lambda x, w: F.conv2d(x, w, groups=3), (2, 6, 9, 8), (9, 2, 3, 1)),
    "conv3d": (lambda x, w: F.conv3d(x, w, dilation=(1, 2, 1)), (1, 2, 4, 7, 5), (3, 2, 2, 3, 3)),
    "conv_transpose1d": (lambda x, w: F.conv_transpose1d(x, w, stride=2), (2, 6, 9), (6, 4, 3)),
    "conv_transpose2d": (
        lambda x, w: F.conv_transpose2d(x, w, stride=2, padding=1, output_padding=1),
        (2, 6, 5, 4),
        (6, 4, 3, 3),
    ),
    "conv_transpose2d, a stride beyond the result": (
        lambda x, w: F.conv_transpose2d(x, w, stride=(10**8, 1)),
        (1, 6, 1, 9),
        (6, 4, 1, 3),
    ),
    "conv_transpose3d": (lambda x, w: F.conv_transpose3d(x, w), (1, 3, 3, 4, 5), (3, 2, 2, 2, 2)),
}  # fmt: skip


@pytest.mark.smoke
@pytest.mark.parametrize("name", CALLS)
def test_a_convolution_computes_what_it_does_in_pytorch(name: str) -> None:
    torch.manual_seed(0)
    call, x, weight = CALLS[name]

    check_on_host(call, torch.randn(x), torch.randn(weight))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_convolution_of_16_bits_sums_in_float32(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 70, 9, 8).to(dtype).to(memory_format=torch.channels_last)

    check_on_host(lambda x, w: F.conv2d(x, w), x, torch.randn(5, 70, 3, 3).to(dtype), rtol=2e-2)


def test_a_padding_that_differs_at_both_ends_stays_with_aten() -> None:
    graph = extract_ir(
        Function(lambda x, w: F.conv2d(x, w, padding="same")),
        (torch.randn(1, 2, 5, 5), torch.randn(3, 2, 2, 2)),
    )
    nodes = list(graph.nodes_of("aten.conv2d.padding"))

    assert nodes
    assert HOST.supports(nodes[0]) == "Conv takes numbers as padding, not 'same'"


def test_an_image_without_a_batch_stays_with_aten() -> None:
    graph = extract_ir(Function(F.conv2d), (torch.randn(2, 5, 5), torch.randn(3, 2, 2, 2)))
    nodes = list(graph.nodes_of("aten.conv2d.default"))

    assert "Conv takes batches of images: 3 axes, weights of 4" in map(HOST.supports, nodes)


def test_a_convolution_of_packed_weights_computes_what_it_does_in_pytorch() -> None:
    torch.manual_seed(0)
    model, x = torch.nn.Conv2d(6, 70, 3, stride=2, padding=1), torch.randn(2, 6, 9, 8)

    executor = IRExecutor(extract_ir(model, (x,)), model.state_dict(), backend=HOST, passes="host")

    assert executor.lowered.count("PackedConv") == 1
    torch.testing.assert_close(executor(x), model(x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("tile", [2, 4])
@pytest.mark.parametrize(
    ("batch", "size", "padding"),
    [(1, (8, 8), 1), (2, (9, 7), (1, 0)), (1, (3, 22), 2), (1, (2, 1), 1), (1, (70, 13), 0)],
    ids=str,
)
def test_a_convolution_by_winograds_algorithm_computes_what_it_does_in_pytorch(
    monkeypatch: pytest.MonkeyPatch, tile: int, batch: int, size: tuple[int, int], padding: Any
) -> None:
    torch.manual_seed(0)
    monkeypatch.setattr("npu_runtime.cpu.pack_panels.panel_tile", lambda _: tile)
    x = torch.randn(batch, 80, *size).to(memory_format=torch.channels_last)
    weights, bias = torch.randn(128, 80, 3, 3), torch.randn(128)
    z = F.conv2d(x.double(), weights.double(), bias.double(), padding=padding)
    other = torch.randn(z.shape).to(memory_format=torch.channels_last)

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weights, self.bias = torch.nn.Parameter(weights), torch.nn.Parameter(bias)

        def forward(self, x: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
            plain = F.conv2d(x, self.weights, padding=padding)
            return plain, F.relu(F.conv2d(x, self.weights, self.bias, padding=padding) + other)

    model = Model()
    executor = IRExecutor(extract_ir(model, (x, other)), model.state_dict(), backend=HOST, passes="host")
    plain, following = executor(x, other)

    kernels = [op.op.kernel for op in executor.lowered.ops]
    assert kernels.count("packed_conv.winograd.host") == 2
    tolerance = 1e-5 * float(z.abs().max())
    torch.testing.assert_close(plain.double(), z - bias.double()[:, None, None], rtol=0, atol=tolerance)
    torch.testing.assert_close(following.double(), F.relu(z + other), rtol=0, atol=tolerance)


class ConvNet(torch.nn.Module):
    """All kinds of convolutions, with gradients of inputs, weights and biases."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Conv2d(3, 8, 3, padding=1),
            torch.nn.Conv2d(8, 8, 3, stride=2, groups=8, bias=False),
            torch.nn.ReLU(),
            torch.nn.Conv2d(8, 12, 1, groups=2),
            torch.nn.ConvTranspose2d(12, 6, 3, stride=2, output_padding=1),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_convolutions_train_as_in_pytorch(memory_format: torch.memory_format) -> None:
    torch.manual_seed(0)
    model, x = ConvNet(), torch.randn(4, 3, 11, 10).to(memory_format=memory_format)

    kinds = check_training_on_host(model, x, torch.randn_like(model(x).detach()))

    assert {"Conv", "ConvWeightGradient"} <= kinds


@examples(10)
@given(data=st.data())
def test_any_convolution_equals_that_of_pytorch(data: st.DataObject) -> None:
    axes = data.draw(st.integers(1, 3))
    groups = data.draw(st.integers(1, 3))
    numbers = st.lists(st.integers(1, 3), min_size=axes, max_size=axes)
    kernel, stride, dilation = data.draw(numbers), data.draw(numbers), data.draw(numbers)
    padding = [data.draw(st.integers(0, size // 2)) for size in kernel]
    sizes = [d * (k - 1) + data.draw(st.integers(1, 6)) for k, d in zip(kernel, dilation, strict=True)]
    inputs, outputs = (groups * data.draw(st.integers(1, 9)) for _ in range(2))
    torch.manual_seed(data.draw(st.integers(0, 99)))
    x = torch.randn(data.draw(st.integers(1, 3)), inputs, *sizes)
    if axes == 2 and data.draw(st.booleans()):
        x = x.to(memory_format=torch.channels_last)
    is_transposed = data.draw(st.booleans())
    shape = (inputs, outputs // groups) if is_transposed else (outputs, inputs // groups)
    weight, bias = torch.randn(*shape, *kernel), torch.randn(outputs)

    def convolve(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return torch.ops.aten.convolution.default(
            x, weight, bias, stride, padding, dilation, is_transposed, [0] * axes, groups
        )  # type: ignore[no-any-return]

    check_on_host(convolve, x, weight, bias)
