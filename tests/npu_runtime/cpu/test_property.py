"""Properties of the CPU passes on random convolutions and linear layers."""

from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, assume, given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from npu_passes import PassManager
from npu_runtime.cpu import pack_convolution
from tests.support.corpus.case import Holding
from tests.support.passes.cpu_cases import CPU_PASSES, assert_computes, captured
from tests.support.tiers import examples

slow = examples(15, suppress_health_check=list(HealthCheck), deadline=None)
PAIR = st.tuples(st.integers(1, 2), st.integers(1, 2))
ACTIVATIONS = st.sampled_from([None, F.relu, F.hardswish, F.silu, torch.tanh, F.gelu, F.relu6])


@st.composite
def convolutions(draw: st.DrawFn) -> tuple[nn.Conv2d, Tensor]:
    """Draw a convolution and an image for it, in either layout."""
    groups = draw(st.sampled_from([1, 1, 2, 4, 8]))
    channels, out = groups * draw(st.integers(1, 5)), groups * draw(st.integers(1, 5))
    kernel = draw(st.tuples(st.integers(1, 4), st.integers(1, 4)))
    same = draw(st.booleans())
    stride = (1, 1) if same else draw(PAIR)
    # Eager PyTorch 2.13 crashes where a kernel of one element is padded beyond the image.
    most = [3 if side > 1 else 0 for side in kernel]
    padding: Any = "same" if same else draw(st.tuples(*(st.integers(0, limit) for limit in most)))
    size = draw(st.tuples(st.integers(1, 12), st.integers(1, 12)))
    dilation = draw(PAIR)
    if not same:
        reach = [d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)]
        assume(all(s + 2 * p >= r for s, p, r in zip(size, padding, reach, strict=True)))
    conv = nn.Conv2d(channels, out, kernel, stride, padding, dilation, groups, bias=draw(st.booleans()))
    x = torch.randn(draw(st.integers(1, 3)), channels, *size)
    return conv, x.to(memory_format=torch.channels_last) if draw(st.booleans()) else x


@pytest.fixture
def eager_to_rewrite(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the passes rewrite whatever they can, however small it is."""
    monkeypatch.setattr("npu_runtime.cpu.channels_last.seconds_saved", lambda item: 1.0)
    monkeypatch.setattr(pack_convolution, "packing_pays", lambda item: True)


@slow
@given(convolutions(), ACTIVATIONS, st.booleans(), st.booleans())
@pytest.mark.usefixtures("eager_to_rewrite")
@pytest.mark.filterwarnings("ignore:Using padding='same'")
def test_random_convolutions_keep_values_and_strides(
    drawn: tuple[nn.Conv2d, Tensor], activation: Any, is_residual: bool, is_read_twice: bool
) -> None:
    conv, x = drawn

    def forward(self: Any, x: Tensor, residual: Tensor) -> Any:
        y = self.conv(x)
        z = y + residual if is_residual else y
        z = z if activation is None else activation(z)
        return (z, y * 2) if is_read_twice else z

    residual = torch.randn_like(conv.eval()(x).detach())
    model = Holding(forward, conv=conv)

    graph = PassManager(CPU_PASSES).run(captured(model, x, residual)).graph

    graph.check()
    assert_computes(graph, model, x, residual)


@slow
@given(
    st.sampled_from([2, 4]),
    st.integers(1, 6),
    st.integers(1, 6),
    st.integers(3, 13),
    st.integers(0, 2),
    st.booleans(),
)
def test_random_convolutions_by_winograd_keep_values_and_strides(
    tile: int, channels: int, out: int, size: int, padding: int, bias: bool
) -> None:
    model = nn.Conv2d(channels, out, 3, padding=padding, bias=bias)
    x = torch.randn(2, channels, size, size + 1)
    graph = captured(model, x)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("npu_runtime.cpu.channels_last.seconds_saved", lambda item: 1.0)
        patch.setattr("npu_runtime.cpu.winograd.winograd_tile", lambda item: tile)
        graph = PassManager("channels-last,winograd").run(graph).graph

    graph.check()
    assert_computes(graph, model, x)


@slow
@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=3),
    st.integers(1, 40),
    st.integers(1, 40),
    st.booleans(),
    ACTIVATIONS,
)
def test_random_linear_layers_keep_values_and_strides(
    rows: list[int], given: int, out: int, bias: bool, activation: Any
) -> None:
    linear = nn.Linear(given, out, bias=bias)
    model = Holding(lambda self, x: (activation or torch.clone)(self.linear(x)), linear=linear)
    x = torch.randn(*rows, given)

    graph = PassManager("pack-linear{min_products=1}").run(captured(model, x)).graph

    graph.check()
    assert_computes(graph, model, x)
