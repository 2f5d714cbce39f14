"""Choices of the next token: an executor for each `Sampling`, and a loop where one can be made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from npu_ir import extract_ir
from npu_ir.plugins import plugin_manager
from npu_ir.plugins.backend import Backend
from npu_runtime.decoders.extract import DecoderGraphs
from npu_runtime.decoders.sampler import Sampler, Sampling
from npu_runtime.decoders.token_loop import TokenLoop, TokenStep
from npu_runtime.executor.executor import IRExecutor

# Each has memory for several numbers of each token of the vocabulary.
_MOST_KEPT = 16


class Choices:
    """Executors that choose the tokens of a decoder, and loops: made when asked for, and the last ones kept.

    Args:
        graphs: The graphs of the model.
        executor: The executor for one token.
        padding: The padding of each row, in the memory where later calls find it.

    Attributes:
        no_tokens: What a sampler is given for the tokens before, if it does not ask for them.
    """

    def __init__(self, graphs: DecoderGraphs, executor: IRExecutor, padding: Tensor) -> None:
        self._graphs, self._executor, self._padding = graphs, executor, padding
        self._samplers: dict[Sampling, IRExecutor] = {}
        self._loops: dict[Sampling, TokenLoop | None] = {}
        self._step: TokenStep | None = None
        shape = graphs.batch, graphs.vocabulary
        self.no_tokens = torch.zeros(shape, dtype=torch.bool, device=executor.device)

    def sampler(self, sampling: Sampling) -> IRExecutor:
        """Return an executor of the `Sampler`; seeds have the same one."""
        sampling = replace(sampling, seed=0)
        if sampling not in self._samplers:
            _make_place(self._samplers)
            self._samplers[sampling] = self._make_sampler(sampling, None)
        return self._samplers[sampling]

    def loop(self, sampling: Sampling, source: Sequence[Tensor] | None) -> TokenLoop | None:
        """Return the loop that generates tokens; None if a step needs Python.

        Args:
            sampling: How tokens are chosen.
            source: What was read of a source, if the model has an encoder; `read` says when it is another.
        """
        sampling = replace(sampling, seed=0)
        if self._step is not None and not self._step.is_current:
            self._step = None
            self._loops.clear()
        if sampling not in self._loops:
            _make_place(self._loops)
            with torch.inference_mode(False), torch.no_grad():  # later calls in any mode write to its tensors
                self._loops[sampling] = self._make_loop(sampling, source)
        return self._loops[sampling]

    def read(self, source: Sequence[Tensor]) -> None:
        """Have loops read another source."""
        if self._step is not None:
            self._step.read(source)

    def _make_loop(self, sampling: Sampling, source: Sequence[Tensor] | None) -> TokenLoop | None:
        if self._step is None and not sampling.asks_for_tokens:
            self._step = TokenStep.of(self._graphs, self._executor, self._padding, source)
        if sampling.asks_for_tokens or self._step is None or not self._step.can_be_repeated:
            return None
        # All of it on that backend, be it by name: costs may have chosen others for a part.
        named = plugin_manager.get_plugins().backends.get(self._step.call.backend.name)
        sampler = self._make_sampler(sampling, named or self._step.call.backend)
        return TokenLoop.of(self._step, sampler, self.no_tokens)

    def _make_sampler(self, sampling: Sampling, backend: Backend | None) -> IRExecutor:
        batch, device = self._graphs.batch, self._executor.device
        (result,) = self._graphs.by_count[1].outputs
        logits = torch.empty(batch, self._graphs.vocabulary, dtype=result.tensor_type.dtype, device=device)
        drawn = torch.empty(batch, dtype=torch.float32, device=device)
        graph = extract_ir(Sampler(sampling), (logits, logits.bool(), drawn))
        return IRExecutor(graph, passes="auto", device=device, backend=backend)


def _make_place(kept: dict[Sampling, Any]) -> None:
    while len(kept) >= _MOST_KEPT:
        del kept[next(iter(kept))]
