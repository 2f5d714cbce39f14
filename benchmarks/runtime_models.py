"""The models of `runtime.py`: perceptrons, transformers and convolutional networks, small and large."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import models
import torch
from torch import nn
from torch.nn import functional as F

Made = tuple[nn.Module, tuple[Any, ...]]


class ConvNorm(nn.Sequential):
    """A convolution, its batch norm, and perhaps an activation."""

    def __init__(
        self, inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1, act: Any = None
    ) -> None:
        conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
        super().__init__(conv, nn.BatchNorm2d(outputs), *([] if act is None else [act()]))


class Residual(nn.Module):
    """Some layers, and around them an identity or a projection; then ReLU."""

    def __init__(self, layers: nn.Module, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.layers = layers
        is_same = stride == 1 and inputs == outputs
        self.project = nn.Identity() if is_same else ConvNorm(inputs, outputs, 1, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.layers(x) + self.project(x))


def basic(inputs: int, width: int, stride: int) -> tuple[nn.Module, int]:
    """Return a block of ResNet-18, and its number of channels."""
    layers = nn.Sequential(ConvNorm(inputs, width, 3, stride, act=nn.ReLU), ConvNorm(width, width, 3))
    return Residual(layers, inputs, width, stride), width


def bottleneck(inputs: int, width: int, stride: int) -> tuple[nn.Module, int]:
    """Return a block of ResNet-50, and its number of channels."""
    layers = nn.Sequential(
        ConvNorm(inputs, width, 1, act=nn.ReLU),
        ConvNorm(width, width, 3, stride, act=nn.ReLU),
        ConvNorm(width, 4 * width, 1),
    )
    return Residual(layers, inputs, 4 * width, stride), 4 * width


def resnet(block: Any, depths: list[int], width: int = 64, *, small: bool = False) -> nn.Module:
    """Return a ResNet; a small one begins without a stride and without pooling."""
    stem = ConvNorm(3, width, 3, act=nn.ReLU) if small else ConvNorm(3, width, 7, 2, act=nn.ReLU)
    layers: list[nn.Module] = [stem] if small else [stem, nn.MaxPool2d(3, 2, 1)]
    channels = width
    for level, depth in enumerate(depths):
        for index in range(depth):
            layer, channels = block(channels, width * 2**level, 2 if level and not index else 1)
            layers.append(layer)
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10 if small else 1000))
    return nn.Sequential(*layers, *head)


class SqueezeExcite(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.down = nn.Conv2d(channels, channels // 4, 1)
        self.up = nn.Conv2d(channels // 4, channels, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * F.hardsigmoid(self.up(F.relu(self.down(F.adaptive_avg_pool2d(x, 1)))))


class Inverted(nn.Module):
    """An inverted residual block of MobileNetV3."""

    def __init__(
        self, inputs: int, hidden: int, outputs: int, kernel: int, stride: int, act: Any, squeeze: bool
    ) -> None:
        super().__init__()
        self.is_residual = stride == 1 and inputs == outputs
        self.layers = nn.Sequential(
            *([] if hidden == inputs else [ConvNorm(inputs, hidden, 1, act=act)]),
            ConvNorm(hidden, hidden, kernel, stride, groups=hidden, act=act),
            *([SqueezeExcite(hidden)] if squeeze else []),
            ConvNorm(hidden, outputs, 1),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.layers(x) if self.is_residual else self.layers(x)


# hidden, outputs, kernel, stride, activation, squeeze: MobileNetV3-Large
MOBILE = [
    (16, 16, 3, 1, nn.ReLU, False),
    (64, 24, 3, 2, nn.ReLU, False),
    (72, 24, 3, 1, nn.ReLU, False),
    (72, 40, 5, 2, nn.ReLU, True),
    (120, 40, 5, 1, nn.ReLU, True),
    (120, 40, 5, 1, nn.ReLU, True),
    (240, 80, 3, 2, nn.Hardswish, False),
    (200, 80, 3, 1, nn.Hardswish, False),
    (184, 80, 3, 1, nn.Hardswish, False),
    (184, 80, 3, 1, nn.Hardswish, False),
    (480, 112, 3, 1, nn.Hardswish, True),
    (672, 112, 3, 1, nn.Hardswish, True),
    (672, 160, 5, 2, nn.Hardswish, True),
    (960, 160, 5, 1, nn.Hardswish, True),
    (960, 160, 5, 1, nn.Hardswish, True),
]


def mobilenet() -> nn.Module:
    layers: list[nn.Module] = [ConvNorm(3, 16, 3, 2, act=nn.Hardswish)]
    channels = 16
    for hidden, outputs, *more in MOBILE:
        layers.append(Inverted(channels, hidden, outputs, *more))
        channels = outputs
    layers += [ConvNorm(channels, 960, 1, act=nn.Hardswish), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(960, 1280), nn.Hardswish(), nn.Linear(1280, 1000))


class VitBlock(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.qkv(self.attention_norm(x)).view(batch, length, 3, self.heads, -1)
        q, k, v = parts.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, length, width)
        x = x + self.project(mixed)
        return x + self.mlp(x)


class Vit(nn.Module):
    """A vision transformer of patches of 16 by 16 pixels."""

    def __init__(self, layers: int = 12, width: int = 384, heads: int = 6) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, 16)
        self.first = nn.Parameter(torch.randn(1, 1, width))
        self.positions = nn.Parameter(torch.randn(1, 197, width))
        self.blocks = nn.Sequential(*(VitBlock(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 1000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(x.shape[0], -1, -1), x], 1) + self.positions
        return self.head(self.norm(self.blocks(x))[:, 0])


class BertBase(nn.Module):
    """BERT-base of transformers; returns the last hidden state."""

    def __init__(self) -> None:
        super().__init__()
        from transformers import BertConfig, BertModel

        self.bert = BertModel(BertConfig(), add_pooling_layer=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.bert(tokens).last_hidden_state


class UNet(nn.Module):
    """A U-Net over 1, 2 or 3 axes: two halvings by pooling, and two transposed convolutions."""

    def __init__(self, axes: int, width: int) -> None:
        super().__init__()
        self.convolution = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[axes - 1]
        self.norm = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)[axes - 1]
        transposed = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)[axes - 1]
        self.pool = (nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d)[axes - 1](2)
        self.first, self.second = self.block(1, width), self.block(width, 2 * width)
        self.bottom = self.block(2 * width, 4 * width)
        self.wider, self.widest = transposed(4 * width, 2 * width, 2, 2), transposed(2 * width, width, 2, 2)
        self.third, self.fourth = self.block(4 * width, 2 * width), self.block(2 * width, width)
        self.last = self.convolution(width, 2, 1)

    def block(self, inputs: int, outputs: int) -> nn.Module:
        layers = [
            layer
            for channels in (inputs, outputs)
            for layer in (self.convolution(channels, outputs, 3, padding=1), self.norm(outputs), nn.ReLU())
        ]
        return nn.Sequential(*layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = self.first(x)
        second = self.second(self.pool(first))
        x = self.third(torch.cat([self.wider(self.bottom(self.pool(second))), second], 1))
        last: torch.Tensor = self.last(self.fourth(torch.cat([self.widest(x), first], 1)))
        return last


def generator() -> nn.Module:
    """Return the generator of a DCGAN: transposed convolutions from 1 x 1 to 64 x 64 pixels."""
    layers: list[nn.Module] = [nn.ConvTranspose2d(100, 256, 4, bias=False), nn.BatchNorm2d(256), nn.ReLU()]
    for inputs, outputs in ((256, 128), (128, 64), (64, 32)):
        layers += [nn.ConvTranspose2d(inputs, outputs, 4, 2, 1, bias=False), nn.BatchNorm2d(outputs)]
        layers += [nn.ReLU()]
    return nn.Sequential(*layers, nn.ConvTranspose2d(32, 3, 4, 2, 1), nn.Tanh())


def mlp(batch: int) -> Made:
    layers = [layer for _ in range(16) for layer in (nn.Linear(64, 64), nn.ReLU())]
    return nn.Sequential(*layers), (torch.randn(batch, 64),)


def gpt(layers: int, width: int, length: int, heads: int = 4) -> Made:
    model = models.Gpt(layers, width, heads, 256, length)
    return model, (torch.randint(0, 256, (1, length)),)


def image(model: nn.Module, size: int = 224) -> Made:
    return model, (torch.randn(1, 3, size, size),)


# By name on the command line; the second item is the name in the tables.
MODELS: dict[str, tuple[str, Callable[[], Made]]] = {
    "mlp-1": ("MLP 64x16, batch 1", lambda: mlp(1)),
    "mlp-64": ("MLP 64x16, batch 64", lambda: mlp(64)),
    "gpt-d32-l6": ("GPT d32 L6 T16", lambda: gpt(6, 32, 16)),
    "gpt-d32-l24": ("GPT d32 L24 T16", lambda: gpt(24, 32, 16)),
    "gpt-d256-l6": ("GPT d256 L6 T128", lambda: gpt(6, 256, 128, 8)),
    "bert-base": ("BERT-base T128", lambda: (BertBase(), (torch.randint(0, 30000, (1, 128)),))),
    "resnet18-w8": (
        "ResNet-18 width 8, 32x32",
        lambda: image(resnet(basic, [2, 2, 2, 2], 8, small=True), 32),
    ),
    "resnet18": ("ResNet-18, 224x224", lambda: image(resnet(basic, [2, 2, 2, 2]))),
    "resnet50": ("ResNet-50, 224x224", lambda: image(resnet(bottleneck, [3, 4, 6, 3]))),
    "mobilenet": ("MobileNetV3, 224x224", lambda: image(mobilenet())),
    "vit-small": ("ViT-small, 224x224", lambda: image(Vit())),
}
# Run where they are named: signals, volumes and transposed convolutions.
FURTHER_MODELS: dict[str, tuple[str, Callable[[], Made]]] = {
    "unet-1d": ("U-Net 1d, 4x1024", lambda: (UNet(1, 16), (torch.randn(4, 1, 1024),))),
    "unet-2d": ("U-Net 2d, 128x128", lambda: (UNet(2, 16), (torch.randn(1, 1, 128, 128),))),
    "unet-3d": ("U-Net 3d, 32x32x32", lambda: (UNet(3, 8), (torch.randn(1, 1, 32, 32, 32),))),
    "dcgan": ("DCGAN generator, batch 4", lambda: (generator(), (torch.randn(4, 100, 1, 1),))),
}
ALL_MODELS = MODELS | FURTHER_MODELS
# Where the time goes into calling kernels, not into kernels.
OVERHEAD_BOUND = ("mlp-1", "mlp-64", "gpt-d32-l6", "gpt-d32-l24", "resnet18-w8")


def make(name: str) -> Made:
    """Return a model in eval mode, the same each time, and its arguments; its batch norms have seen data."""
    torch.manual_seed(0)
    model, args = ALL_MODELS[name][1]()
    norms = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
    for norm in (module for module in model.modules() if isinstance(module, norms)):
        norm.running_mean.normal_(0, 0.1)
        norm.running_var.uniform_(0.5, 1.5)
    return model.eval(), args
