"""The training steps that `train.py` measures: perceptrons, a convolutional network, a transformer."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from models import Gpt
from runtime_models import ConvNorm
from torch import Tensor, nn
from torch.nn import functional as F

Loss = Callable[[Any, Tensor], Tensor]
Made = tuple[nn.Module, Loss, tuple[Tensor, ...]]

# So small that thousands of steps on one batch leave a network about where it was: no loss of zero, no
# denormal numbers.
RATE = 1e-5
OPTIMIZERS: dict[str, tuple[str, Callable[..., torch.optim.Optimizer]]] = {
    "adam": ("Adam", lambda parameters, **options: torch.optim.Adam(parameters, lr=RATE, **options)),
    "sgd": (
        "SGD with momentum",
        lambda parameters, **options: torch.optim.SGD(parameters, lr=RATE, momentum=0.9, **options),
    ),
}


@dataclass(frozen=True, slots=True)
class Model:
    """A network to train.

    Attributes:
        title: Its name in the tables.
        make: Returns the network, its loss, and a batch: inputs, then the target.
        limit: How much of eager's time a step of ours may take.
    """

    title: str
    make: Callable[[], Made]
    limit: float


def perceptron(batch: int, *widths: int, loss: Loss) -> Made:
    """Return layers of these widths with ReLU between them."""
    layers: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    target = torch.randn(batch, widths[-1]) if loss is F.mse_loss else torch.randint(0, widths[-1], (batch,))
    return nn.Sequential(*layers[:-1]), loss, (torch.randn(batch, widths[0]), target)


def convolutional() -> Made:
    """Return three convolutions with batch norm and ReLU, pooling, and a layer to ten classes."""
    layers = [ConvNorm(3, 16, 3, act=nn.ReLU), ConvNorm(16, 32, 3, 2, act=nn.ReLU)]
    layers += [ConvNorm(32, 64, 3, 2, act=nn.ReLU)]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))
    return model, F.cross_entropy, (torch.randn(32, 3, 32, 32), torch.randint(0, 10, (32,)))


def transformer(layers: int = 2, width: int = 64, length: int = 64, batch: int = 16) -> Made:
    """Return a decoder over 96 characters, its embedding tied to its head.

    Queries, keys and values have no bias: the gradient of a key's is zero but for rounding, and Adam makes
    steps of that, other ones in each contender.
    """
    model = Gpt(layers, width, vocabulary=96, length=length)
    for embedding in (model.tokens, model.positions):
        nn.init.normal_(embedding.weight, std=0.02)
    for block in model.blocks:
        block.qkv = nn.Linear(width, 3 * width, bias=False)
    tokens = torch.randint(0, 96, (batch, length + 1))
    return model, next_token_loss, (tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous())


def next_token_loss(logits: Tensor, tokens: Tensor) -> Tensor:
    return F.cross_entropy(logits.flatten(0, 1), tokens.flatten())


MODELS = {
    "mlp-8": Model("MLP 64x8x8x8", lambda: perceptron(64, 8, 8, 8, loss=F.mse_loss), 0.4),
    "mlp-784": Model("MLP 64x784x256x10", lambda: perceptron(64, 784, 256, 10, loss=F.cross_entropy), 0.85),
    "cnn": Model("CNN with batch norm, 32x3x32x32", convolutional, 0.85),
    "transformer": Model("Transformer d64 L2, 16x64", transformer, 0.85),
    "gpt": Model("GPT d256 L4, 4x128", lambda: transformer(4, 256, 128, 4), 0.85),
}
