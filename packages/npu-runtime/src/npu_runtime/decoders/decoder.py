"""`Decoder`: a language model that generates tokens, with a cache that is written in place."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from npu_ir import SerializationError, WeightError
from npu_ir.errors import UsageError
from npu_ir.plugins.backend import Backend
from npu_runtime._torch.opaque_calls import opaque
from npu_runtime.decoders.cached_text import CachedText
from npu_runtime.decoders.checkpoint import read_checkpoint
from npu_runtime.decoders.choices import Choices
from npu_runtime.decoders.executors import ExecutorOptions, make_encoder, make_executors
from npu_runtime.decoders.extract import DecoderGraphs
from npu_runtime.decoders.generation import Generation
from npu_runtime.decoders.sampler import Sampling
from npu_runtime.decoders.source import Source
from npu_runtime.decoders.token_checks import (
    checked_fill,
    checked_padding,
    checked_stop,
    require_sampling,
    require_tokens,
)
from npu_runtime.executor.executor import IRExecutor
from npu_runtime.executor.options import Passes
from npu_runtime.executor.turn import Turn

_GREEDY = Sampling()


class Decoder:
    """A language model with weights and a cache, which generates tokens.

    .. code-block:: python

        decoder = Decoder(extract_decoder("folder"), "folder")
        tokens = decoder.generate(prompt, max_new_tokens=100)

    A model with an encoder reads a source first: ``decoder.encode(source)``. The graphs for one token and for
    many share the cache, the weights, and what is made of them (packed matrices). The cache is written in
    place: a token takes as long with a large cache as with a small one. Calls by several threads take turns.

    Args:
        graphs: The graphs of the model.
        weights: Weights by ``state_dict`` key; or the path of a checkpoint, as `IRExecutor` takes it, which
            is mapped, not copied. A folder whose weights have other names than the model's, or are in parts,
            is loaded by transformers. Of a checkpoint only what the graphs need is read: it may have other
            tensors (masks, frequencies), but not more layers than the model.
        backend: As for `IRExecutor`, like the next three.
        passes: Likewise.
        device: Likewise.
        threads: Likewise.

    Attributes:
        graphs: The graphs of the model.

    Raises:
        WeightError: Weights are missing, or of another shape or dtype; a ``state_dict`` has unexpected ones;
            or a checkpoint has more layers.
        BackendError: There is no such backend.
        UsageError: What is given has no graphs of a model.
    """

    def __init__(
        self,
        graphs: DecoderGraphs,
        weights: Mapping[str, Tensor] | str | os.PathLike[str],
        *,
        backend: str | Backend | Sequence[str | Backend] | None = None,
        passes: Passes = "auto",
        device: torch.device | str | None = None,
        threads: int | None = None,
    ) -> None:
        if not isinstance(graphs, DecoderGraphs):
            raise UsageError(
                f"a decoder is made of the graphs of a model, not of {type(graphs).__name__}",
                fix="Decoder(extract_decoder(model), weights)",
            )
        self.graphs = graphs
        self._turn = Turn()
        if isinstance(weights, (str, os.PathLike)):
            weights = read_checkpoint(weights, graphs)
        elif not isinstance(weights, Mapping):
            raise WeightError(
                f"weights are tensors by name, or the path of a checkpoint, not {type(weights).__name__}",
                where="Decoder",
                fix="pass model.state_dict(), or a path",
            )
        weights = {**graphs.positions, **weights}
        options = ExecutorOptions(backend, passes, device, threads)
        self._executors = make_executors(graphs, weights, options)
        self._device = self._executors[1].device
        encoder = make_encoder(graphs, weights, options)
        self._source = None if encoder is None else Source(graphs, encoder)
        self._text = CachedText(graphs, self._executors)
        self._choices = Choices(graphs, self._executors[1], self._text.padding)

    def __reduce__(self) -> tuple[object, ...]:
        raise SerializationError(
            "a Decoder cannot be copied or pickled: it is compiled, and has a cache in memory of its own",
            fix="make another one: Decoder(graphs, weights); its graphs can be copied and pickled",
        )

    @property
    def position(self) -> int:
        """The number of positions of the cache that are in use; to set it back forgets the tokens behind."""
        return self._text.position

    @position.setter
    def position(self, position: int) -> None:
        with self._turn.lock:
            self._text.go_back(position)

    def executor(self, count: int = 1) -> IRExecutor:
        """Return the executor for calls of so many tokens, for `explain` and `profile`.

        Raises:
            UsageError: There is no graph for so many.
        """
        if count not in self._executors:
            raise UsageError(
                f"there is no graph for {count} tokens, but for {', '.join(map(str, self._executors))}",
                fix="extract_decoder(..., counts=(...))",
            )
        return self._executors[count]

    @opaque
    def encode(self, source: Tensor, mask: Tensor | None = None) -> None:
        """Read a source, for all that is generated from now on, and empty the cache.

        Args:
            source: For a model of text, tokens, int64 ``[batch, count]``, of at most as many as the graph was
                captured for; for one of sound, features as the processor of the model makes them.
            mask: Which tokens are not padding, ``[batch, count]``; by default all.

        Raises:
            UsageError: The model has no encoder, or these are not such tokens.
            ExecutionError: The features are of another shape or dtype.
        """
        if self._source is None:
            raise UsageError("the model has no encoder", fix="pass tokens to feed() or generate()")
        with self._turn.lock:
            encoded = self._source.encode(source, mask)
            # Until cache and loops are those of the new source, too: Ctrl-C may come in between.
            self._source.set(None)
            self._text.empty()
            self._choices.read(encoded)
            self._source.set(encoded)

    @opaque
    def reset(self) -> None:
        """Empty the cache; a source stays."""
        with self._turn.lock:
            self._text.empty()

    @opaque
    def feed(self, tokens: Tensor, padding: Sequence[int] | None = None) -> Tensor:
        """Append tokens to the cache; return the logits after the last one, ``[batch, vocabulary]``.

        Args:
            tokens: int64 ``[batch, count]``, any number of them.
            padding: For each row the number of tokens at its beginning that nothing attends to; of the first
                tokens only.

        Raises:
            UsageError: The cache has no place for them, or they are not such tokens.
            ExecutionError: A node fails; the cache is as it was before that call of a graph.
        """
        with self._turn.lock:
            require_tokens(self.graphs, tokens)
            self._text.require_place(tokens.shape[1])
            return self._feed(tokens.to(self._device), padding)

    def _feed(self, tokens: Tensor, padding: Sequence[int] | None) -> Tensor:
        return self._text.append(tokens, padding, self._encoded())

    def _encoded(self) -> Sequence[Tensor] | None:
        return None if self._source is None else self._source.encoded()

    @opaque
    def stream(
        self,
        tokens: Tensor,
        *,
        max_new_tokens: int,
        sampling: Sampling = _GREEDY,
        padding: Sequence[int] | None = None,
    ) -> Iterator[Tensor]:
        """Yield the tokens that follow a prompt one by one, int64 ``[batch]``; no stop token ends them.

        Args:
            tokens: The prompt, int64 ``[batch, count]``; it is appended to what the cache has.
            max_new_tokens: The number of tokens.
            sampling: How they are chosen.
            padding: As for `feed`.

        Raises:
            UsageError: As for `feed`; or the decoder was used otherwise between two tokens.
        """
        return self._stream(tokens, max_new_tokens, sampling, padding)

    @opaque  # a generator: the function above is one that TorchDynamo calls as it is
    def _stream(
        self, tokens: Tensor, max_new_tokens: int, sampling: Sampling, padding: Sequence[int] | None
    ) -> Iterator[Tensor]:
        with self._turn.lock:
            require_sampling(sampling)
            self._require_room(tokens, max_new_tokens)
            if padding is not None:
                checked_padding(self.graphs, padding, tokens.shape[1])
            generation = self._generation(tokens, max_new_tokens, sampling, padding)
        for row in generation.rows.unbind(0):
            with self._turn.lock:
                self._take(generation, sampling, 1)
            yield row.clone()  # it is the caller's

    def _generation(
        self,
        tokens: Tensor,
        count: int,
        sampling: Sampling,
        padding: Sequence[int] | None,
        stop: Sequence[int] = (),
    ) -> Generation:
        tokens = tokens.to(self._device)
        sampler = self._choices.sampler(sampling)
        with torch.inference_mode(False):  # its tensors are written to between tokens, in any mode
            asks = sampling.asks_for_tokens
            seen = self._text.find_seen(tokens, padding) if asks else self._choices.no_tokens
            generation = Generation(tokens, padding, count, sampling, sampler, seen, stop)
        generation.uses = self._text.uses
        return generation

    def _take(self, generation: Generation, sampling: Sampling, limit: int) -> None:
        """Generate so many tokens of each row at most: where the backend can, without Python in between."""
        if self._text.uses != generation.uses:
            raise UsageError(
                "the decoder was used otherwise since the last token of this stream, which goes on from"
                " what its cache had then",
                fix="take all tokens of a stream first, or make a decoder for each",
            )
        loop = self._choices.loop(sampling, self._encoded()) if generation.taken else None
        if loop is None:
            generation.take_one(self._feed)
        else:
            self._text.require_current()
            before, self._text.is_changing = generation.taken, True
            try:
                generation.take(loop, limit, self.position)
            finally:
                count = generation.taken - before
                self._text.note(generation.rows[before - 1 :][:count].t())
        generation.uses = self._text.uses

    @opaque
    def generate(
        self,
        tokens: Tensor | None = None,
        *,
        max_new_tokens: int,
        sampling: Sampling = _GREEDY,
        padding: Sequence[int] | None = None,
        stop: Sequence[int] | None = None,
        fill: int = 0,
        reset: bool = True,
    ) -> Tensor:
        """Return a prompt and the tokens that follow it, int64 ``[batch, count]``.

        Where one backend runs all that a token takes, such as ``host``, there is no Python between tokens.

        Args:
            tokens: The prompts, padded on the left to one length. A model with an encoder that says with
                which token texts begin needs none.
            max_new_tokens: The most tokens that are generated.
            sampling: How they are chosen.
            padding: For each row the number of tokens of its padding.
            stop: The tokens that end a row; by default those of the model.
            fill: The token after the end of a row, while others go on.
            reset: Begin with an empty cache. Otherwise the prompt is appended to what the cache has: of a
                text that was generated before, all but its last token.

        Raises:
            UsageError: The cache has no place for them, or they are not such tokens; or another argument is
                not as it says. Nothing is generated then.
        """
        if tokens is None:
            tokens = self.first_tokens()
        stop = self.graphs.stop if stop is None else checked_stop(stop)
        fill = checked_fill(fill)
        with self._turn.lock:
            return self._generate(tokens, max_new_tokens, sampling, padding, stop, fill, reset=reset)

    def _generate(
        self,
        tokens: Tensor,
        max_new_tokens: int,
        sampling: Sampling,
        padding: Sequence[int] | None,
        stop: Sequence[int],
        fill: int,
        *,
        reset: bool,
    ) -> Tensor:
        require_sampling(sampling)
        self._require_room(tokens, max_new_tokens, used=0 if reset else self.position)
        if padding is not None:
            checked_padding(self.graphs, padding, tokens.shape[1])
        if reset:
            self.reset()
        generation = self._generation(tokens, max_new_tokens, sampling, padding, stop)
        while not generation.is_over:
            self._take(generation, sampling, max_new_tokens)
        return torch.cat([tokens.to(self._device), generation.filled(fill)], 1)

    def first_tokens(self) -> Tensor:
        """Return the token that texts begin with, int64 ``[batch, 1]``, for a model with an encoder.

        Raises:
            UsageError: The model does not say which.
        """
        if self.graphs.start is None:
            raise UsageError("the model does not say with which token a text begins", fix="give tokens")
        start = [[self.graphs.start]] * self.graphs.batch
        return torch.tensor(start, dtype=torch.int64, device=self._device)

    def _require_room(self, tokens: Tensor, max_new_tokens: int, used: int | None = None) -> None:
        """Refuse a prompt that is none, or for which and for what follows there is no place."""
        if type(max_new_tokens) is not int or max_new_tokens < 1:
            raise UsageError(f"max_new_tokens is {max_new_tokens!r}, not 1 or more")
        require_tokens(self.graphs, tokens)
        self._text.require_place(tokens.shape[1] + max_new_tokens - 1, used)
