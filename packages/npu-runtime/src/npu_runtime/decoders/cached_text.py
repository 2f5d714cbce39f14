"""The text in the cache of a decoder: tokens are appended to it by calls of its graphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from npu_ir.errors import UsageError
from npu_runtime.decoders.extract import DecoderGraphs
from npu_runtime.decoders.token_checks import checked_padding
from npu_runtime.executor.executor import IRExecutor


class CachedText:
    """The tokens in the cache, and the calls that append others.

    Args:
        graphs: The graphs of the model.
        executors: The executor for each number of tokens, which share the cache.

    Attributes:
        padding: The padding of each row, in the memory where calls find it.
        position: The number of positions of the cache that are in use.
        uses: The number of calls that have changed the cache.
        is_changing: True while the cache changes, until its new tokens are noted; and if that was
            interrupted.
    """

    def __init__(self, graphs: DecoderGraphs, executors: Mapping[int, IRExecutor]) -> None:
        self._graphs, self._executors = graphs, executors
        self._device = executors[1].device
        self.position = 0
        self.uses = 0
        self.is_changing = False
        self.padding = self._integers([0] * graphs.batch)
        self._start, self._last = self._integers(0), self._integers(0)
        self._used = 1  # tokens of the last call: `_last` is that of the last one
        with torch.inference_mode(False):
            self._tokens = self._start.new_zeros(graphs.batch, graphs.length)
        self._resets = executors[1].resets

    def empty(self) -> None:
        """Empty the cache."""
        self._executors[1].reset()
        self._resets = self._executors[1].resets
        self.position = 0
        self.uses += 1
        self.is_changing = False

    def go_back(self, position: int) -> None:
        """Forget the tokens from a position on.

        Raises:
            UsageError: It is not among those in use; or the model keeps no tokens apart.
        """
        self.require_current()
        if type(position) is not int or not 0 <= position <= self.position:
            raise UsageError(
                f"the position is {position!r}, not an integer from 0 to {self.position}, which are in use"
            )
        if self._graphs.is_recurrent and position < self.position:
            raise UsageError(
                "a recurrent model has one state for all tokens, and cannot forget the last ones",
                fix="call reset(), and give the text from its beginning",
            )
        self.position = position
        self.uses += 1

    def append(
        self, tokens: Tensor, padding: Sequence[int] | None, source: Sequence[Tensor] | None
    ) -> Tensor:
        """Append tokens; return the logits after the last one, ``[batch, vocabulary]``.

        Args:
            tokens: int64 ``[batch, count]``, on the device, for which there is place.
            padding: As for `Decoder.feed`.
            source: What was read of a source, if the model has an encoder.
        """
        self.require_current()
        self._set_padding(padding, tokens.shape[1])
        given = () if source is None else (source,)
        logits, done, total = tokens, 0, tokens.shape[1]
        while done < total:
            count, used = self._next_count(total - done)
            part = tokens if used == total else tokens[:, done : done + used]
            if used < count:  # what follows is overwritten by later tokens, and not attended to before
                part = torch.nn.functional.pad(part, (0, count - used))
            self._start.fill_(self.position)
            if used != self._used:
                self._used = 0  # until it is written: Ctrl-C may come in between
                self._last.fill_(used - 1)
                self._used = used
            self.is_changing = True
            try:
                logits = self._executors[count](part, self._start, self.padding, self._last, *given)
            except Exception:
                self.is_changing = False  # a call that fails changes nothing
                raise
            self.note(tokens[:, done : done + used])
            done += used
        return logits

    def note(self, tokens: Tensor) -> None:
        """Note that calls have appended these tokens, ``[batch, count]``, to the cache."""
        count = tokens.shape[1]
        self._tokens[:, self.position : self.position + count].copy_(tokens)
        self.position += count
        self.uses += 1
        self.is_changing = False

    def _set_padding(self, padding: Sequence[int] | None, length: int) -> None:
        if padding is not None:
            if self.position:
                raise UsageError("there is padding at the beginning of a row only", fix="call reset() first")
            self.padding.copy_(self._integers(checked_padding(self._graphs, padding, length)))
        elif not self.position:
            self.padding.zero_()

    def _next_count(self, rest: int) -> tuple[int, int]:
        """Return for how many tokens the next call is, and how many of these there are."""
        fitting = [count for count in self._executors if self.position + count <= self._graphs.length]
        whole = max(count for count in fitting if count <= rest)
        larger = [count for count in fitting if count > rest]
        # A call for more tokens takes less time than several for fewer.
        return (min(larger), rest) if larger and rest > 1 and whole < rest else (whole, whole)

    def find_seen(self, tokens: Tensor, padding: Sequence[int] | None) -> Tensor:
        """Return which tokens each row has, with these that are to be appended, ``[batch, vocabulary]``."""
        seen = torch.zeros(self._graphs.batch, self._graphs.vocabulary, dtype=torch.bool, device=self._device)
        given = self.padding.tolist() if self.position else padding or [0] * self._graphs.batch
        text = torch.cat([self._tokens[:, : self.position], tokens], 1)
        for row, skipped in enumerate(given):
            seen[row, text[row, skipped:]] = True
        return seen

    def require_current(self) -> None:
        """Refuse to go on from a cache that was emptied by others, or whose text is unknown.

        Raises:
            UsageError: An executor of the decoder was reset, or has other weights; or a call was interrupted,
                or this process was forked during one.
        """
        if self.is_changing:
            raise UsageError(
                "the last call of the decoder was interrupted: it is unknown which tokens its cache has",
                fix="call reset(), and give the text from its beginning",
            )
        if self.position and self._executors[1].resets != self._resets:
            raise UsageError(
                f"the cache of {self.position} positions was emptied: an executor of the decoder was reset,"
                " or has other weights",
                fix="call reset(), and give the text from its beginning",
            )

    def require_place(self, count: int, used: int | None = None) -> None:
        """Refuse more tokens than there is place for.

        Args:
            count: The number of tokens.
            used: The number of positions before them; by default those in use.

        Raises:
            UsageError: There is no place.
        """
        used = self.position if used is None else used
        if used + count > self._graphs.length:
            raise UsageError(
                f"the cache has {self._graphs.length} positions, of which {used} are in use:"
                f" there is no place for {count} more",
                fix="capture the model with a larger max_length, or call reset()",
            )

    def _integers(self, numbers: Any) -> Tensor:
        with torch.inference_mode(False):  # calls in any mode write to it
            return torch.tensor(numbers, dtype=torch.int64, device=self._device)
