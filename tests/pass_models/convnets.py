"""Convolutional networks of well-known shape: what folding norms is for. Weights are random."""

import torch
from torch import nn


def conv_norm(
    inputs: int,
    outputs: int,
    kernel: int,
    stride: int = 1,
    groups: int = 1,
    activation: nn.Module | None = None,
) -> nn.Sequential:
    layers = [
        nn.Conv2d(inputs, outputs, kernel, stride, (kernel - 1) // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
    ]
    return nn.Sequential(*layers, *([] if activation is None else [activation]))


class SqueezeExcite(nn.Module):
    """Scale channels by what a small network makes of their means."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        squeezed = max(8, channels // 4)
        self.gates = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(channels, squeezed, 1),
            nn.ReLU(),
            nn.Conv2d(squeezed, channels, 1),
            nn.Hardsigmoid(),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.gates(x)


class InvertedResidual(nn.Module):
    """A block of MobileNetV3: expand, depthwise, squeeze and excite, project."""

    def __init__(
        self, inputs: int, kernel: int, expanded: int, outputs: int, excite: bool, hard: bool, stride: int
    ) -> None:
        super().__init__()
        act: type[nn.Module] = nn.Hardswish if hard else nn.ReLU
        layers: list[nn.Module] = []
        if expanded != inputs:
            layers.append(conv_norm(inputs, expanded, 1, activation=act()))
        layers.append(conv_norm(expanded, expanded, kernel, stride, expanded, act()))
        if excite:
            layers.append(SqueezeExcite(expanded))
        layers.append(conv_norm(expanded, outputs, 1))
        self.layers = nn.Sequential(*layers)
        self.is_residual = stride == 1 and inputs == outputs

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.layers(x) if self.is_residual else self.layers(x)


# Of MobileNetV3-Large, table 1 of arXiv:1905.02244: kernel, expansion, outputs, squeeze and excite,
# hardswish, stride.
_LARGE = (
    (3, 16, 16, False, False, 1),
    (3, 64, 24, False, False, 2),
    (3, 72, 24, False, False, 1),
    (5, 72, 40, True, False, 2),
    (5, 120, 40, True, False, 1),
    (5, 120, 40, True, False, 1),
    (3, 240, 80, False, True, 2),
    (3, 200, 80, False, True, 1),
    (3, 184, 80, False, True, 1),
    (3, 184, 80, False, True, 1),
    (3, 480, 112, True, True, 1),
    (3, 672, 112, True, True, 1),
    (5, 672, 160, True, True, 2),
    (5, 960, 160, True, True, 1),
    (5, 960, 160, True, True, 1),
)


class MobileNetV3(nn.Module):
    """MobileNetV3-Large for images."""

    def __init__(self, classes: int = 1000, blocks: int = len(_LARGE)) -> None:
        super().__init__()
        layers: list[nn.Module] = [conv_norm(3, 16, 3, 2, activation=nn.Hardswish())]
        inputs = 16
        for kernel, expanded, outputs, excite, hard, stride in _LARGE[:blocks]:
            layers.append(InvertedResidual(inputs, kernel, expanded, outputs, excite, hard, stride))
            inputs = outputs
        layers.append(conv_norm(inputs, 6 * inputs, 1, activation=nn.Hardswish()))
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(
            nn.Linear(6 * inputs, 1280), nn.Hardswish(), nn.Dropout(0.2), nn.Linear(1280, classes)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.classifier(self.features(x).mean((2, 3)))


def with_random_norms(model: nn.Module) -> nn.Module:
    """Give every batch norm statistics and weights that folding it has to get right."""
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias, std=0.2)
            nn.init.normal_(module.running_mean, std=0.2)
            nn.init.uniform_(module.running_var, 0.5, 2.0)
    return model
