"""Convolutions and attention on the backend host, against PyTorch: whole calls and their gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from npu_cuda.backend import HostBackend
from npu_ir import extract_ir
from npu_runtime import IRExecutor, TrainStep
from tests.support.corpus.case import Function
from tests.support.tiers import examples

HOST = HostBackend()


def check_on_host(function: Callable[..., Any], *inputs: Tensor, rtol: float = 1e-4) -> None:
    """Check that every node runs on the backend host, and returns what PyTorch does, in the same layout."""
    graph = extract_ir(Function(function), inputs)
    executor = IRExecutor(graph, {}, backend=HOST, passes=None)
    assert {item.backend for item in executor.lowered.ops} == {"host"}, executor.lowered

    actual, expected = executor(*inputs), function(*inputs)

    torch.testing.assert_close(actual, expected, rtol=rtol, atol=rtol)
    assert strides_of(actual) == strides_of(expected)


def strides_of(tensor: Tensor) -> list[int]:
    """Return the strides of the axes that have several elements: the others say nothing."""
    return [stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if size > 1]


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
    expected, actual = ConvNet(), ConvNet()
    x = torch.randn(4, 3, 11, 10).to(memory_format=memory_format)
    target = torch.randn_like(expected(x).detach())
    actual.load_state_dict(expected.state_dict())
    step = TrainStep(actual, torch.optim.SGD(actual.parameters(), lr=0.1), F.mse_loss, backend=HOST)
    optimizer = torch.optim.SGD(expected.parameters(), lr=0.1)

    for _ in range(3):
        loss = step(x, target)
        optimizer.zero_grad()
        wanted = F.mse_loss(expected(x), target)
        wanted.backward()
        optimizer.step()
        torch.testing.assert_close(loss, wanted.detach())

    kinds = {item.op.kind for item in step.artifact.lowered.ops if item.backend == "host"}
    assert {"Conv", "ConvWeightGradient"} <= kinds
    torch.testing.assert_close(actual.state_dict(), expected.state_dict(), rtol=1e-4, atol=1e-5)


def heads_of(x: Tensor, heads: int) -> Tensor:
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


ATTENTIONS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "plain": F.scaled_dot_product_attention,
    "causal": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
    "scale": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, scale=0.3),
}


@pytest.mark.parametrize(("dtype", "rtol"), [(torch.float32, 1e-5), (torch.bfloat16, 1e-2)])
def test_one_query_reads_no_keys_that_a_mask_hides(dtype: torch.dtype, rtol: float) -> None:
    used, whole = 70, 300
    q, k, v = (torch.randn(2, 4, size, 16, dtype=dtype) for size in (1, whole, whole))
    k[:, :, used:], v[:, :, used:] = torch.nan, torch.inf
    visible = torch.arange(whole) < used
    added = torch.zeros(whole, dtype=dtype).masked_fill(~visible, -torch.inf)
    expected = F.scaled_dot_product_attention(q, k[:, :, :used], v[:, :, :used])

    for mask in (visible[None], added[None], visible.expand(2, 4, 1, whole).clone()):
        graph = extract_ir(Function(F.scaled_dot_product_attention), (q, k, v, mask))
        found = IRExecutor(graph, {}, backend=HOST, passes=None)(q, k, v, mask)
        torch.testing.assert_close(found, expected, rtol=rtol, atol=rtol)


@pytest.mark.parametrize("name", ATTENTIONS)
@pytest.mark.parametrize("queries", [1, 5, 130])
def test_attention_computes_what_it_does_in_pytorch(name: str, queries: int) -> None:
    torch.manual_seed(0)
    q = torch.randn(2, 3, queries, 20)
    k, v = torch.randn(2, 2, 3, 130, 20)

    check_on_host(ATTENTIONS[name], q, k, v)


@pytest.mark.parametrize("kind", ["bool", "float"])
def test_a_query_that_takes_no_key_gives_zeros(kind: str) -> None:
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 2, 3, 7, 8)
    takes = torch.rand(2, 1, 7, 7) < 0.5
    takes[0, 0, 2] = False
    mask = takes if kind == "bool" else torch.zeros(takes.shape).masked_fill(~takes, float("-inf"))

    check_on_host(lambda q, k, v, mask: F.scaled_dot_product_attention(q, k, v, mask), q, k, v, mask)


def attend_with_expanded_mask(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, mask.expand(-1, 3, 7, 7))


@pytest.mark.parametrize("kind", ["bool", "float"])
@pytest.mark.parametrize("shape", [(2, 1, 1, 7), (1, 1, 7, 1), (2, 3, 1, 1)], ids=str)
def test_a_mask_is_expanded_without_a_copy(shape: tuple[int, ...], kind: str) -> None:
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 2, 3, 7, 8)
    takes = torch.rand(shape) < 0.7
    mask = takes if kind == "bool" else torch.randn(shape)

    check_on_host(attend_with_expanded_mask, q, k, v, mask)
    check_on_host(F.scaled_dot_product_attention, q, k, v, mask.expand(2, 3, 7, 7))


def test_a_mask_that_was_captured_expanded_may_come_in_any_strides() -> None:
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 2, 3, 7, 8)
    expanded, dense = torch.randn(2, 1, 1, 7).expand(2, 3, 7, 7), torch.randn(2, 3, 7, 7)
    permuted = torch.randn(7, 7, 3, 2).permute(3, 2, 1, 0)
    graph = extract_ir(Function(F.scaled_dot_product_attention), (q, k, v, expanded))
    program = HOST.prepare(graph, HOST.lower(graph), torch.device("cpu"))

    for mask in (expanded, dense, permuted, expanded):
        expected = F.scaled_dot_product_attention(q, k, v, mask)
        results = [HOST.run(program, [q, k, v, mask])[0], torch.empty_like(expected), None]
        HOST.bind(program, [q, k, v, mask], [results[1]])()
        results[2] = HOST.capture(program, [q, k, v, mask]).outputs[0]
        constant = HOST.bind_constants(program, {3: mask})
        results.append(HOST.run(constant, [q, k, v])[0])

        for result in results:
            torch.testing.assert_close(result, expected)


def test_grouped_heads_compute_what_they_do_in_pytorch() -> None:
    torch.manual_seed(0)
    q, (k, v) = torch.randn(2, 6, 9, 8), torch.randn(2, 2, 2, 11, 8)

    check_on_host(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True), q, k, v)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, dropout_p=0.5), "no dropout, here of 0.5"),
        (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, scale=0.0), "a scale other than 0"),
    ],
)
def test_attention_that_the_native_op_lacks_stays_with_aten(call: Callable[..., Tensor], match: str) -> None:
    graph = extract_ir(Function(call), tuple(torch.randn(3, 2, 3, 7, 8)))
    (node,) = graph.nodes_of("aten.scaled_dot_product_attention.default")

    assert match in str(HOST.supports(node))


class Attention(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = torch.nn.Linear(24, 72)
        self.out = torch.nn.Linear(24, 24)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (heads_of(part, 3) for part in self.qkv(x).chunk(3, -1))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).flatten(2))


def test_attention_trains_as_in_pytorch() -> None:
    torch.manual_seed(0)
    expected, actual, x = Attention(), Attention(), torch.randn(2, 67, 24)
    actual.load_state_dict(expected.state_dict())
    step = TrainStep(actual, torch.optim.SGD(actual.parameters(), lr=0.1), F.mse_loss, backend=HOST)
    optimizer = torch.optim.SGD(expected.parameters(), lr=0.1)

    for _ in range(3):
        loss = step(x, x)
        optimizer.zero_grad()
        wanted = F.mse_loss(expected(x), x)
        wanted.backward()
        optimizer.step()
        torch.testing.assert_close(loss, wanted.detach())

    assert {"Attention", "AttentionGradient"} <= {item.op.kind for item in step.artifact.lowered.ops}
    torch.testing.assert_close(actual.state_dict(), expected.state_dict(), rtol=1e-4, atol=1e-5)


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
