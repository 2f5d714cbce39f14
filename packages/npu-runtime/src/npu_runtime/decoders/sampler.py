"""Choice of the next token from logits: as a module, which is captured into a graph like any other."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from npu_ir.errors import UsageError

# Some devices take smaller numbers for zero.
_SMALLEST_FLOAT32 = torch.finfo(torch.float32).tiny
_SMALLEST, _LARGEST = math.ulp(0.0), sys.float_info.max


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """The choice of tokens; by default always the most likely one.

    Attributes:
        temperature: 0.0 for the most likely token. Otherwise tokens are drawn from ``softmax(logits /
            temperature)``.
        top_k: Draw from this many most likely tokens only.
        top_p: Draw from the fewest most likely tokens only whose probabilities add up to at least this; from
            the most likely one, however small this is.
        repetition_penalty: Logits of tokens that the row has already are divided by it if they are positive,
            and multiplied otherwise (Keskar et al., CTRL, 2019).
        seed: Of the random numbers.

    Raises:
        UsageError: A number is out of range, or not a number.
    """

    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None
    repetition_penalty: float = 1.0
    seed: int = 0

    @property
    def asks_for_tokens(self) -> bool:
        """True if a choice depends on the tokens before."""
        return self.repetition_penalty != 1.0

    def __post_init__(self) -> None:
        for name, kinds, lowest, highest, range_text in (
            ("temperature", (int, float), 0, _LARGEST, "a number of 0 or more"),
            ("top_k", (int, type(None)), 1, _LARGEST, "an integer of 1 or more"),
            ("top_p", (int, float, type(None)), _SMALLEST, 1, "a number above 0, and at most 1"),
            ("repetition_penalty", (int, float), _SMALLEST, _LARGEST, "a number above 0"),
            ("seed", (int,), 0, 2**64 - 1, "an integer from 0 to 2**64 - 1"),
        ):
            given = getattr(self, name)
            if type(given) not in kinds or not (given is None or lowest <= given <= highest):
                raise UsageError(f"{name} is {given!r}, not {range_text}", where="Sampling")


class Sampler(nn.Module):
    """The next tokens ``[batch, 1]`` of logits ``[batch, vocabulary]``.

    The other inputs are which tokens each row has already, bool ``[batch, vocabulary]``, and for each row a
    random number in [0, 1), float32 ``[batch]``.
    """

    def __init__(self, sampling: Sampling) -> None:
        super().__init__()
        self._sampling = sampling

    def forward(self, logits: Tensor, seen: Tensor, drawn: Tensor) -> Tensor:
        sampling, logits = self._sampling, logits.float()
        if sampling.asks_for_tokens:
            penalty = sampling.repetition_penalty
            logits = torch.where(seen, torch.where(logits > 0, logits / penalty, logits * penalty), logits)
        if sampling.temperature == 0.0:
            return logits.argmax(-1, keepdim=True)
        below = (logits - logits.amax(-1, keepdim=True)) / sampling.temperature  # 0 for the most likely token
        ordered, tokens = torch.sort(below, dim=-1, descending=True)
        if sampling.top_k is not None:
            ordered, tokens = ordered[:, : sampling.top_k], tokens[:, : sampling.top_k]
        likely = ordered.softmax(-1)
        if sampling.top_p is not None:
            # As a zero it would keep no token at all: the sum before the most likely one is zero, too.
            top_p = max(sampling.top_p, _SMALLEST_FLOAT32)
            likely = likely * (likely.cumsum(-1) - likely < top_p)
        sums = likely.cumsum(-1)
        # The first place whose sum is above the number that was drawn: its probability is not zero.
        place = (sums <= drawn[:, None] * sums[:, -1:]).sum(-1, keepdim=True)
        return tokens.gather(1, place.clamp(max=tokens.shape[1] - 1))
