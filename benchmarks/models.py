"""The models that the benchmarks capture."""

from __future__ import annotations

import itertools

import torch
from torch import nn
from torch.nn import functional as F


class GptBlock(nn.Module):
    """A pre-norm transformer decoder block."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)
        self.mlp_norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.qkv(self.attention_norm(x)).split(width, dim=2)
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in parts)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
        x = x + self.project(mixed.reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.mlp_norm(x)), approximate="tanh"))


class Gpt(nn.Module):
    """A GPT with tied embeddings."""

    def __init__(
        self, layers: int, width: int = 64, heads: int = 4, vocabulary: int = 1000, length: int = 32
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(length, width)
        self.blocks = nn.ModuleList(GptBlock(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def gpt(layers: int) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Return a GPT in eval mode and its example inputs."""
    return Gpt(layers).eval(), (torch.randint(0, 1000, (2, 32)),)


def resnet50(*, training: bool) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Return ResNet-50 of transformers and its example inputs: in-place ReLUs and additions."""
    from transformers import ResNetConfig, ResNetForImageClassification

    model = ResNetForImageClassification(ResNetConfig()).train(training)
    return model, (torch.randn(2, 3, 64, 64),)


class UNet(nn.Module):
    """A U-Net with batch norms, which upsamples by transposed convolutions."""

    def __init__(self, width: int = 32, depth: int = 4) -> None:
        super().__init__()
        widths = [width * 2**level for level in range(depth + 1)]
        self.down = nn.ModuleList(map(self.block, [3, *widths], widths))
        self.up = nn.ModuleList(
            nn.Sequential(
                nn.ConvTranspose2d(upper, lower, 2, 2, bias=False), nn.BatchNorm2d(lower), nn.ReLU()
            )
            for lower, upper in itertools.pairwise(widths)
        )
        self.merge = nn.ModuleList(self.block(2 * lower, lower) for lower in widths[:-1])
        self.head = nn.Conv2d(width, 2, 1)

    @staticmethod
    def block(inputs: int, outputs: int) -> nn.Sequential:
        layers = [
            (nn.Conv2d(channels, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU())
            for channels in (inputs, outputs)
        ]
        return nn.Sequential(*itertools.chain(*layers))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        levels = [self.down[0](x)]
        for block in self.down[1:]:
            levels.append(block(F.max_pool2d(levels[-1], 2)))
        x = levels.pop()
        for up, merge in zip(reversed(self.up), reversed(self.merge), strict=True):
            x = merge(torch.cat([up(x), levels.pop()], 1))
        return self.head(x)


def unet() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Return a U-Net in eval mode, with 22 batch norms, and its example inputs."""
    return UNet().eval(), (torch.randn(1, 3, 64, 64),)


def llama_70b() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Return an 80-layer, 70-billion-parameter decoder on ``meta`` and its example inputs."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=8192,
        intermediate_size=28672,
        num_hidden_layers=80,
        num_attention_heads=64,
        num_key_value_heads=8,
        vocab_size=128256,
        use_cache=False,
    )
    with torch.device("meta"):
        return LlamaForCausalLM(config).eval(), (torch.zeros(1, 128, dtype=torch.long, device="meta"),)
