"""Steps of decoding without Python: the graph of a token and the one that chooses the next, over fixed memory."""

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
class TokenLoop:
    """The call for one token, and that which chooses the next one and leaves it where the first reads it.

    Attributes:
        executor: The executor for one token.
        calls: Both calls.
        tokens: The tokens that it reads, int64 ``[batch, 1]``; a step leaves the next ones there.
        start: Their position.
        drawn: A random number for each row.
        source: What was read of a source, in memory of its own.
    """

    executor: IRExecutor
    calls: tuple[BoundCall, BoundCall]
    tokens: Tensor
    start: Tensor
    drawn: Tensor
    source: tuple[Tensor, ...]

    @classmethod
    def of(
        cls,
        graphs: DecoderGraphs,
        executor: IRExecutor,
        sampler: IRExecutor,
        padding: Tensor,
        source: Sequence[Tensor] | None,
    ) -> TokenLoop | None:
        """Return the loop of a decoder; None where a step needs Python.

        Args:
            graphs: The graphs of the model.
            executor: That for one token.
            sampler: That of a `Sampler` that does not ask for the tokens before.
            padding: The padding of each row, in the memory where later calls find it.
            source: What was read of a source, if the model has one.
        """
        device = executor.device
        tokens = torch.zeros(graphs.batch, 1, dtype=torch.int64, device=device)
        start, last = tokens.new_zeros(()), tokens.new_zeros(())
        copied = () if source is None else tuple(map(torch.clone, source))
        step = executor._engine.bind_call((tokens, start, padding, last, *([list(copied)] if copied else ())), {})
        if step is None:
            return None
        drawn = torch.zeros(graphs.batch, device=device)
        seen = torch.zeros(graphs.batch, graphs.vocabulary, dtype=torch.bool, device=device)
        choice = sampler._engine.bind_call((step.results[0], seen, drawn), {0: tokens[:, 0]})
        if choice is None or choice.backend.name != step.backend.name:
            return None
        loop = step.backend.make_row_loop([step.run, choice.run], [], [(tokens, tokens[None])])
        return None if loop is None else cls(executor, (step, choice), tokens, start, drawn, copied)

    @property
    def is_current(self) -> bool:
        """True if it reads the weights that the executor has now."""
        return self.executor._engine.is_current(self.calls[0])

    def read(self, source: Sequence[Tensor]) -> None:
        """Have later steps read another source."""
        for fixed, item in zip(self.source, source, strict=True):
            fixed.copy_(item)

    def begin(
        self,
        first: Tensor,
        positions: Tensor,
        drawn: Tensor,
        rows: Tensor,
        stop: tuple[list[int], Tensor] | None,
    ) -> RowLoop:
        """Return the loop that generates tokens.

        Args:
            first: The tokens before, int64 ``[batch]``.
            positions: The position of the token of each step, int64 ``[steps]``.
            drawn: The random numbers of each step, ``[steps, batch]``.
            rows: Where the tokens of each step are to be, int64 ``[steps, batch]``.
            stop: Tokens that end a row, and the rows that have ended; there are no steps after all have.
        """
        self.tokens[:, 0].copy_(first)
        step, choice = self.calls
        inputs = [(self.start, positions), (self.drawn, drawn)]
        loop = step.backend.make_row_loop([step.run, choice.run], inputs, [(self.tokens, rows)], stop)
        assert loop is not None
        return loop

    def run(self, loop: RowLoop, limit: int) -> bool:
        """Take so many steps at most while no other call of the decoder runs, or those of a short time.

        Return whether there are no more.

        Raises:
            WeightError: A weight of which calls read another form was changed in place.
            ExecutionError: PyTorch traces or transforms what this thread does.
            BackendError: A step fails, which leaves the cache as it was before that step.
        """
        return self.executor._engine.run_bound(loop.run, limit, _SECONDS)
