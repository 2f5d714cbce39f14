"""The text to learn: the language topics of Python's `help()`, which every CPython has."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pydoc_data.topics import topics

import torch
from torch import Tensor

HELD_OUT = 0.1


@dataclass(frozen=True, slots=True)
class Corpus:
    """A text as numbers.

    Attributes:
        vocabulary: Every character that occurs; its place is its number.
        training: [n]
        held_out: [n], the end of the text, which is not trained on.
    """

    vocabulary: str
    training: Tensor
    held_out: Tensor

    def text(self, numbers: Tensor) -> str:
        return "".join(self.vocabulary[number] for number in numbers.tolist())

    def numbers(self, text: str) -> Tensor:
        return torch.tensor([self.vocabulary.index(character) for character in text])


def load() -> Corpus:
    """Return the language reference that ships with Python, about half a million characters."""
    text = "\n\n".join(topics[name] for name in sorted(topics))
    vocabulary = "".join(sorted(set(text)))
    place = {character: number for number, character in enumerate(vocabulary)}
    numbers = torch.tensor([place[character] for character in text])
    split = int(len(numbers) * (1 - HELD_OUT))
    return Corpus(vocabulary, numbers[:split], numbers[split:])


def batches(numbers: Tensor, size: int, length: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield characters and those that follow each, both [size, length], from random places, without end."""
    generator = torch.Generator().manual_seed(seed)
    offsets = torch.arange(length + 1)
    while True:
        starts = torch.randint(len(numbers) - length, (size, 1), generator=generator)
        windows = numbers[starts + offsets]
        yield windows[:, :-1].contiguous(), windows[:, 1:].contiguous()
