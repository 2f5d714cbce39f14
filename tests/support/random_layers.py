"""Random models as people stack them: layers over images, then over the tokens that their pixels become."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from hypothesis import strategies as st
from torch import Tensor, nn

from tests.support.corpus.case import Function

CHANNELS = 8
Layer = Callable[[], nn.Module]


class Residual(nn.Module):
    """A layer beside a path around it."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Any:
        return x + self.inner(x)


class Attention(nn.Module):
    """Attention of two heads by hand; causal, with a scale on the queries."""

    def __init__(self) -> None:
        super().__init__()
        self.projections, self.out = nn.Linear(CHANNELS, 3 * CHANNELS), nn.Linear(CHANNELS, CHANNELS)

    def forward(self, x: Tensor) -> Any:
        batch, length, _ = x.shape
        q, k, v = self.projections(x).view(batch, length, 3, 2, -1).permute(2, 0, 3, 1, 4)
        scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2)
        hidden = torch.ones(length, length, dtype=torch.bool).triu(1)
        weights = scores.masked_fill(hidden, float("-inf")).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).reshape(batch, length, -1))


def _of(function: Callable[[Tensor], Tensor]) -> Layer:
    return lambda: Function(function)


ACTIVATIONS: Sequence[Layer] = (
    nn.ReLU, nn.ELU, nn.GELU, nn.SiLU, nn.Mish, nn.Hardswish, nn.Hardsigmoid, nn.Softplus, nn.LeakyReLU,
    nn.ReLU6,
)  # fmt: skip
IMAGE_LAYERS: Sequence[Layer] = (
    *ACTIVATIONS,
    lambda: nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1),
    lambda: Residual(nn.Conv2d(CHANNELS, CHANNELS, 3, padding=2, dilation=2, groups=2)),
    lambda: nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, groups=CHANNELS, bias=False),
    lambda: nn.ConvTranspose2d(CHANNELS, CHANNELS, 3, padding=1),
    lambda: nn.BatchNorm2d(CHANNELS),
    lambda: nn.GroupNorm(2, CHANNELS),
    lambda: nn.InstanceNorm2d(CHANNELS, affine=True),
    lambda: nn.Sequential(nn.Conv2d(CHANNELS, 4 * CHANNELS, 1), nn.PixelShuffle(2), nn.AvgPool2d(2)),
    lambda: nn.Sequential(nn.Conv2d(CHANNELS, 2 * CHANNELS, 1), nn.GLU(1)),
    _of(lambda x: F.max_pool2d(x, 3, 1, 1)),
    _of(lambda x: F.interpolate(F.avg_pool2d(x, 2, ceil_mode=True), size=x.shape[-2:], mode="bilinear")),
    _of(lambda x: x * torch.sigmoid(x.mean((2, 3), keepdim=True))),
    _of(lambda x: F.pad(x, (1, 0, 0, 1), mode="replicate")[..., :-1, 1:] * 0.5),
)
TOKEN_LAYERS: Sequence[Layer] = (
    *ACTIVATIONS,
    lambda: nn.LayerNorm(CHANNELS),
    lambda: nn.RMSNorm(CHANNELS, eps=1e-6),
    lambda: Residual(nn.Sequential(nn.Linear(CHANNELS, 20), nn.GELU(), nn.Linear(20, CHANNELS))),
    lambda: Residual(Attention()),
    _of(lambda x: torch.cat([torch.zeros_like(x[:, :1]), x[:, :-1]], 1)),
    _of(lambda x: x.cumsum(1) / 8),
    _of(lambda x: F.normalize(x, dim=-1)),
    _of(lambda x: x - x.mean(1, keepdim=True)),
)


class Stack(nn.Module):
    """Layers over images [batch, 3, height, width], then layers over their pixels; results [batch, 5]."""

    def __init__(self, images: Sequence[Layer], tokens: Sequence[Layer]) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, CHANNELS, 2, stride=2)
        self.images = nn.Sequential(*(make() for make in images))
        self.tokens = nn.Sequential(*(make() for make in tokens))
        self.head = nn.Linear(CHANNELS, 5)

    def forward(self, images: Tensor) -> Any:
        x = self.images(self.stem(images))
        return self.head(self.tokens(x.flatten(2).transpose(1, 2)).mean(1))


@st.composite
def stacks(draw: st.DrawFn) -> Stack:
    """Return a model of up to four layers of each kind; its weights follow from the default generator."""
    images = draw(st.lists(st.sampled_from(range(len(IMAGE_LAYERS))), min_size=1, max_size=4))
    tokens = draw(st.lists(st.sampled_from(range(len(TOKEN_LAYERS))), max_size=4))
    torch.manual_seed(0)
    return Stack([IMAGE_LAYERS[index] for index in images], [TOKEN_LAYERS[index] for index in tokens])
