"""A small decoder over characters."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Block(nn.Module):
    """Causal attention, then two layers, each on a norm and added to its input."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.project = nn.Linear(width, width)
        self.layers = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        parts = self.qkv(self.attention_norm(x)).split(width, dim=2)
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in parts)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
        x = x + self.project(mixed.reshape(batch, length, width))
        return x + self.layers(x)


class CharTransformer(nn.Module):
    """A transformer from characters, [batch, length], to logits of the next, [batch, length, vocabulary].

    The embedding of characters is the head's weight, too.
    """

    def __init__(self, vocabulary: int, width: int, layers: int, heads: int, length: int) -> None:
        super().__init__()
        self.characters = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.characters.weight
        for embedding in (self.characters, self.positions):
            nn.init.normal_(embedding.weight, std=0.02)

    def forward(self, characters: Tensor) -> Tensor:
        x = self.characters(characters) + self.positions.weight[: characters.shape[1]]
        return self.head(self.norm(self.blocks(x)))


def next_character_loss(logits: Tensor, following: Tensor) -> Tensor:
    """Return the mean cross entropy of the characters that follow, in nats."""
    return F.cross_entropy(logits.flatten(0, 1), following.flatten())


@torch.no_grad()
def continued(model: CharTransformer, start: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Return ``start`` [n] and ``count`` characters that the model draws after it."""
    length = model.positions.num_embeddings
    text = start
    for _ in range(count):
        logits = model(text[-length:][None])[0, -1]
        drawn = torch.multinomial(logits.softmax(0), 1, generator=generator)
        text = torch.cat([text, drawn])
    return text
