"""One step of a decoder with a static cache, as a model whose cache comes in and is changed in place."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import transformers

if TYPE_CHECKING:
    from transformers.cache_utils import StaticLayer


class StaticCacheStep(torch.nn.Module):
    """Decodes tokens behind what the cache holds, and writes their keys and values into it."""

    def __init__(self, model: transformers.PreTrainedModel) -> None:
        super().__init__()
        self.model = model

    def forward(
        self,
        input_ids: torch.Tensor,
        filled: torch.Tensor,
        keys: list[torch.Tensor],
        values: list[torch.Tensor],
    ) -> torch.Tensor:
        """Return the logits.

        Args:
            input_ids: Token ids, [batch, sequence].
            filled: How many positions of the cache are in use, a tensor without dimensions.
            keys: One tensor for each layer, [batch, heads, positions, size].
            values: Likewise.
        """
        positions = keys[0].shape[2]
        cache = transformers.StaticCache(config=self.model.config.get_text_config(), max_cache_len=positions)
        cache.layers = [
            _layer(key, value, filled, positions) for key, value in zip(keys, values, strict=True)
        ]
        return self.model(input_ids=input_ids, past_key_values=cache, use_cache=True).logits


def _layer(key: torch.Tensor, value: torch.Tensor, filled: torch.Tensor, positions: int) -> StaticLayer:
    from transformers.cache_utils import StaticLayer

    layer = StaticLayer(max_cache_len=positions)
    layer.lazy_initialization(key, value)
    layer.keys, layer.values, layer.cumulative_length = key, value, filled.clone()
    return layer
