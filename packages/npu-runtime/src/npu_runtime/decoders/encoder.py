"""The encoder of a model that has one: its graph, and what the decoder reads of its results.

Needs transformers: imported by `extract.py` where somebody captures a decoder.
"""

from __future__ import annotations

import types
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import Cache, DynamicCache, EncoderDecoderCache
from transformers.cache_utils import CacheLayerMixin

from npu_ir import Graph, extract_ir


class _GivenLayer(CacheLayerMixin):  # type: ignore[misc]
    """Keys and values of the source for one layer, which are given."""

    def __init__(self, keys: Tensor, values: Tensor) -> None:
        super().__init__()
        self.keys, self.values, self.is_initialized = keys, values, True

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        raise NotImplementedError

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:  # noqa: ARG002 - it is fixed
        return self.get_seq_length(), 0

    def get_seq_length(self) -> int:
        return int(self.keys.shape[-2])

    def get_max_length(self) -> int:
        return self.get_seq_length()


class Encoder:
    """The encoder of a model of transformers, on ``meta``.

    Args:
        model: The model.
        batch: The number of rows.
        length: The number of tokens of a source. A model of sounds has its own.

    Attributes:
        reads_tokens: Whether the source is tokens, int64 ``[batch, length]``; otherwise it is features.
        graph: The graph. It takes the source, and for tokens which of them are not padding, bool ``[batch,
            length]``; it returns keys and values of each layer, in turns, ``[batch, heads, length, size]``.
        read: Example values of what the decoder reads: the mask of tokens, if any, and the results.
    """

    def __init__(self, model: Any, batch: int, length: int) -> None:
        self._width = model.config.hidden_size
        self.reads_tokens: bool = model.main_input_name == "input_ids"
        if self.reads_tokens:
            tokens = torch.zeros(batch, length, dtype=torch.int64, device="meta")
            example: tuple[Tensor, ...] = (tokens, tokens.bool())
        else:
            frames = 2 * model.config.max_source_positions  # of which a convolution leaves each second one
            features = (batch, model.config.num_mel_bins, frames)
            example = (torch.zeros(features, dtype=model.dtype, device="meta"),)
        self.graph = _extract(model, example)
        results = [item.tensor_type for item in self.graph.outputs]
        made = (torch.zeros(item.static_shape, dtype=item.dtype, device="meta") for item in results)
        self.read: list[Tensor] = [*example[1:], *made]

    def arguments(self, own: Any, read: Sequence[Tensor]) -> dict[str, Any]:
        """Return the arguments by which a model reads its source.

        Args:
            own: The cache of the decoder.
            read: As the attribute ``read``.
        """
        masks, states = read[: self.reads_tokens], read[self.reads_tokens :]
        pairs = zip(states[::2], states[1::2], strict=True)
        cache = EncoderDecoderCache(own, Cache(layers=[_GivenLayer(*pair) for pair in pairs]))
        # Of these results only the shape is read: keys and values are those of the cache.
        empty = states[0].new_zeros(states[0].shape[0], states[0].shape[2], self._width)
        return {
            "encoder_outputs": (empty,),
            "past_key_values": cache,
            "attention_mask": masks[0] if masks else None,
        }


def _extract(model: Any, example: tuple[Tensor, ...]) -> Graph:
    original, name = type(model).forward, model.main_input_name

    def forward(self: Any, source: Tensor, mask: Tensor | None = None) -> list[Tensor]:
        cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
        start = torch.zeros(source.shape[0], 1, dtype=torch.int64, device=source.device)
        # Keys and values need nothing of the decoder: what it computes else is not a part of the graph.
        given = {name: source, "attention_mask": mask, "decoder_input_ids": start}
        original(self, **given, past_key_values=cache, use_cache=True)
        layers = cache.cross_attention_cache.layers
        return [item.contiguous() for layer in layers for item in (layer.keys, layer.values)]

    model.forward = types.MethodType(forward, model)
    try:
        with torch.no_grad():
            return extract_ir(model, example, name=f"{type(model).__name__}_encoder")
    finally:
        del model.forward
