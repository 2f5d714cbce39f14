"""A text that is being generated: its tokens so far, and how the next ones are chosen."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from npu_ir.plugins.backend import RowLoop
from npu_runtime.decoders.sampler import Sampling
from npu_runtime.decoders.token_loop import TokenLoop
from npu_runtime.executor.executor import IRExecutor


class Generation:
    """The tokens that follow a prompt.

    Args:
        prompt: The prompt.
        padding: As for `Decoder.feed`.
        count: The number of tokens.
        sampling: How they are chosen.
        sampler: The executor of a `Sampler`.
        seen: Which tokens each row has, bool ``[batch, vocabulary]``, if the choice depends on it.
        stop: The tokens that end a row, if there are any; there are no tokens after all rows have ended.

    Attributes:
        rows: The tokens, int64 ``[count, batch]``.
        taken: The number of rows that are there.
        uses: The number of uses of the decoder after the last one.
    """

    def __init__(
        self,
        prompt: Tensor,
        padding: Sequence[int] | None,
        count: int,
        sampling: Sampling,
        sampler: IRExecutor,
        seen: Tensor,
        stop: Sequence[int] = (),
    ) -> None:
        batch, device = len(prompt), prompt.device
        self.rows = torch.empty(count, batch, dtype=torch.int64, device=device)
        self.taken = 0
        self.uses: int | None = None
        self._next, self._padding = prompt, padding
        self._sampler, self._seen = sampler, seen
        self._notes_tokens = sampling.asks_for_tokens
        generator = torch.Generator("cpu").manual_seed(sampling.seed)
        drawn = torch.rand(count, batch, generator=generator, dtype=torch.float32, device="cpu")
        self._drawn = drawn.to(device)
        self._stop = list(stop)
        self._ends = torch.tensor(self._stop, dtype=torch.int64, device=device)
        self._has_ended = torch.zeros(batch, dtype=torch.bool, device=device)
        self._is_over = False
        self._loop: RowLoop | None = None
        self._tokens: TokenLoop | None = None
        self._begun = 0  # tokens that were there before the loop

    @property
    def is_over(self) -> bool:
        """True if there are no more tokens."""
        return self._is_over or self.taken == len(self.rows)

    def take_one(self, feed: Callable[[Tensor, Sequence[int] | None], Tensor]) -> None:
        """Choose the next token of each row, by the logits after what is fed."""
        logits = feed(self._next, self._padding)
        chosen = self._sampler(logits, self._seen, self._drawn[self.taken])
        if self._notes_tokens:
            self._seen.scatter_(1, chosen, True)
        self._next, self._padding = chosen, None
        self.rows[self.taken] = chosen[:, 0]
        self.taken += 1
        if self._stop:
            self._has_ended |= torch.isin(chosen[:, 0], self._ends)
            self._is_over = bool(self._has_ended.all())

    def take(self, tokens: TokenLoop, limit: int, position: int) -> None:
        """Choose so many tokens of each row at most, after the first one.

        Args:
            tokens: The loop that does so; another one where other weights are bound since.
            limit: The maximum number.
            position: That of the token before.
        """
        if self._loop is None or self._tokens is not tokens:
            self._loop, self._tokens, self._begun = self._begin(tokens, position), tokens, self.taken
        try:
            self._is_over = tokens.run(self._loop, limit)
        finally:
            self.taken = self._begun + self._loop.steps_taken

    def _begin(self, tokens: TokenLoop, position: int) -> RowLoop:
        rows, drawn = self.rows[self.taken :], self._drawn[self.taken :]
        positions = torch.arange(position, position + len(rows), device=rows.device)
        stop = (self._stop, self._has_ended) if self._stop else None
        loop = tokens.begin(self._next, positions, drawn, rows, stop)
        self._next = tokens.step.tokens  # what the last step leaves there
        return loop

    def filled(self, fill: int) -> Tensor:
        """Return the tokens so far, ``[batch, taken]``, with a filler after the end of a row."""
        rows = self.rows[: self.taken]
        is_end = torch.isin(rows, self._ends)
        return torch.where(is_end.cumsum(0) - is_end.long() > 0, fill, rows).t()
