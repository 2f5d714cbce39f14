"""Decoding without Python: the graph for a token and the one that chooses the next, over the same memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from npu_ir.plugins.backend import RowLoop
from npu_runtime.decoders.extract import DecoderGraphs
from npu_runtime.executor.bound_call import BoundCall
from npu_runtime.executor.executor import IRExecutor

# Python handles signals, such as that of Ctrl-C, after this time.
_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class TokenStep:
    """The call for one token over fixed memory.

    Attributes:
        call: The call.
        tokens: The tokens that it reads, int64 ``[batch, 1]``.
        start: Their position.
        source: What was read of a source, in memory of its own.
    """

    call: BoundCall
    tokens: Tensor
    start: Tensor
    source: tuple[Tensor, ...]

    @classmethod
    def of(
        cls, graphs: DecoderGraphs, executor: IRExecutor, padding: Tensor, source: Sequence[Tensor] | None
    ) -> TokenStep | None:
        """Return that of a decoder; None where it needs Python.

        Args:
            graphs: The graphs of the model.
            executor: That for one token.
            padding: The padding of each row, in the memory where later calls find it.
            source: What was read of a source, if the model has an encoder.
        """
        tokens = torch.zeros(graphs.batch, 1, dtype=torch.int64, device=executor.device)
        start, last = tokens.new_zeros(()), tokens.new_zeros(())
        copied = [] if source is None else list(map(torch.clone, source))
        given = (tokens, start, padding, last, *(() if source is None else (copied,)))
        call = executor.bind_call(given)
        return None if call is None else cls(call, tokens, start, tuple(copied))

    @property
    def is_current(self) -> bool:
        """True if it reads the weights that the executor has now."""
        return self.call.is_current

    @property
    def can_be_repeated(self) -> bool:
        """True if its backend runs it again and again without Python."""
        rows = self.tokens[None].contiguous()
        return self.call.backend.make_row_loop([self.call.run], [], [(self.tokens, rows)]) is not None

    def read(self, source: Sequence[Tensor]) -> None:
        """Have later calls read another source."""
        for fixed, item in zip(self.source, source, strict=True):
            fixed.copy_(item)


@dataclass(frozen=True, slots=True)
class TokenLoop:
    """The call for one token, and the one that chooses the next and leaves it where the first reads it.

    Attributes:
        step: The first.
        choice: The second.
        drawn: The random number of each row, which it reads.
    """

    step: TokenStep
    choice: BoundCall
    drawn: Tensor

    @classmethod
    def of(cls, step: TokenStep, sampler: IRExecutor, no_tokens: Tensor) -> TokenLoop | None:
        """Return the loop of a decoder; None where the choice needs Python.

        Args:
            step: The call for one token, which can be repeated.
            sampler: The executor of a `Sampler` that does not ask for the tokens before.
            no_tokens: What it is given for them.
        """
        drawn = torch.zeros(len(step.tokens), dtype=torch.float32, device=sampler.device)
        choice = sampler.bind_call((step.call.results[0], no_tokens, drawn), {0: step.tokens})
        return None if choice is None else cls(step, choice, drawn)

    def begin(
        self,
        first: Tensor,
        positions: Tensor,
        drawn: Tensor,
        rows: Tensor,
        stop: tuple[list[int], Tensor] | None,
    ) -> RowLoop:
        """Return what generates tokens.

        Args:
            first: The tokens before, int64 ``[batch, 1]``.
            positions: The position of the token of each step, int64 ``[steps]``.
            drawn: The random numbers of each step, ``[steps, batch]``.
            rows: Where the tokens of each step are to be, int64 ``[steps, batch]``.
            stop: Tokens that end a row, and the rows that have ended; there are no steps after all have.
        """
        self.step.tokens.copy_(first)
        runs = [self.step.call.run, self.choice.run]
        inputs = [(self.step.start, positions), (self.drawn, drawn)]
        loop = self.step.call.backend.make_row_loop(runs, inputs, [(self.step.tokens, rows)], stop)
        assert loop is not None
        return loop

    def run(self, loop: RowLoop, limit: int) -> bool:
        """Take so many steps at most, or those of a short time; return whether there are no more.

        No other call of the decoder runs meanwhile.

        Raises:
            WeightError: A weight of which calls read another form was changed in place.
            ExecutionError: PyTorch traces or transforms what this thread does.
            BackendError: A step fails, which leaves the cache as it was before that step.
        """
        return self.step.call.in_turn(loop.run, limit, _SECONDS)
