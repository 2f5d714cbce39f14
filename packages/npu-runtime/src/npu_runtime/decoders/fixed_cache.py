"""A cache of keys and values of fixed size, as transformers takes it, whose position is a tensor.

Needs transformers: imported by `extract.py` where somebody captures a decoder.
"""

from __future__ import annotations

import copy
import inspect
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from transformers import StaticCache
from transformers.cache_utils import CacheLayerMixin, LinearAttentionLayer, StaticLayer

from npu_ir import ConversionError

if TYPE_CHECKING:
    from npu_runtime.decoders.encoder import Encoder

_PREFIX = "decoder_cache"


class FixedLayer(CacheLayerMixin):  # type: ignore[misc]
    """Keys and values of all positions, of which a call writes those from ``start`` on.

    Layers with a sliding window have all positions, too: the mask of the model hides those outside.
    """

    is_compileable = True
    is_sliding = False

    def __init__(self, length: int) -> None:
        super().__init__()
        self._length = length
        self.start: Tensor | None = None

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        self.keys, self.values = map(self._empty_like, (key_states, value_states))
        self.is_initialized = True

    def _empty_like(self, states: Tensor) -> Tensor:
        batch, heads, _, size = states.shape
        return states.new_zeros(batch, heads, self._length, size)

    def update(
        self,
        key_states: Tensor,
        value_states: Tensor,
        *args: Any,  # noqa: ARG002 - further ones differ between models, like the next
        **kwargs: Any,  # noqa: ARG002
    ) -> tuple[Tensor, Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        places = torch.arange(key_states.shape[-2], device=key_states.device)
        if self.start is not None:
            places = places + self.start
        self.keys.index_copy_(2, places, key_states)
        self.values.index_copy_(2, places, value_states)
        return self.keys, self.values

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:  # noqa: ARG002 - it is fixed
        return self._length, 0

    def get_seq_length(self) -> Any:
        return 0 if self.start is None else self.start

    def get_max_length(self) -> int:
        return self._length


class FixedCache:
    """The cache of a model whose tensors are buffers of that model.

    Args:
        model: The model, on ``meta``.
        batch: The number of rows.
        length: The number of positions.
        encoder: That of the model, if it has one.

    Attributes:
        cache: What the model takes.
        is_recurrent: Whether a layer has a state in place of keys and values: then a call takes one token.

    Raises:
        ConversionError: The model has layers of another kind.
    """

    def __init__(self, model: nn.Module, batch: int, length: int, encoder: Encoder | None) -> None:
        config: Any = model.config
        self.cache = StaticCache(config=_decoder_config(config), max_cache_len=length)
        kinds = {type(layer) for layer in self.cache.layers}
        self.is_recurrent = LinearAttentionLayer in kinds
        for index, layer in enumerate(self.cache.layers):
            is_known = isinstance(layer, StaticLayer) and not isinstance(layer, LinearAttentionLayer)
            if self.is_recurrent or not is_known:
                self._require_one_kind(model, kinds)
            else:
                self.cache.layers[index] = FixedLayer(length)
        self._make_tensors(model, batch, encoder)

    @staticmethod
    def _require_one_kind(model: nn.Module, kinds: set[type]) -> None:
        if kinds != {LinearAttentionLayer}:
            names = ", ".join(sorted(kind.__name__ for kind in kinds))
            raise ConversionError(
                f"its layers keep {names}, which have no common form of fixed size here",
                where=type(model).__name__,
                fix="models whose layers all keep keys and values, or all a recurrent state, can be captured",
            )

    def _make_tensors(self, model: nn.Module, batch: int, encoder: Encoder | None) -> None:
        """Have the model make the tensors of its cache, and register them."""
        tokens = torch.zeros(batch, 1, dtype=torch.int64, device="meta")
        given: dict[str, Any] = {name_of_cache(model): self.cache}
        if encoder is not None:
            given = {**encoder.arguments(self.cache, encoder.read), "decoder_input_ids": tokens}
            given["attention_mask"] = None  # transformers asks whether it hides something
        elif not self.is_recurrent:
            given["attention_mask"] = tokens.bool()
        if encoder is None:
            given["input_ids"] = tokens
        with torch.no_grad():
            model(**given)
        for index, layer in enumerate(self.cache.layers):
            tensors = (
                {"keys": layer.keys, "values": layer.values}
                if isinstance(layer, FixedLayer)
                else {
                    f"{kind}_{number}": item
                    for kind in ("conv_states", "recurrent_states")
                    for number, item in getattr(layer, kind).items()
                    if item is not None
                }
            )
            for name, tensor in tensors.items():
                model.register_buffer(f"{_PREFIX}_{index}_{name}", tensor, persistent=False)

    def begin(self, start: Tensor) -> None:
        """Have the next call of the model write from position ``start`` on."""
        for layer in self.cache.layers:
            if isinstance(layer, FixedLayer):
                layer.start = start


def _decoder_config(config: Any) -> Any:
    """Return the configuration whose number of layers is that of the decoder."""
    text = config.get_text_config(decoder=True)
    layers = getattr(text, "num_decoder_layers", None)
    if layers is not None and layers != text.num_hidden_layers:  # those of the encoder (T5)
        text = copy.deepcopy(text)
        text.num_hidden_layers = layers
    return text


def name_of_cache(model: nn.Module) -> str:
    """Return the name of the argument of a model that is its cache."""
    names = inspect.signature(type(model).forward).parameters
    return "past_key_values" if "past_key_values" in names else "cache_params"


def is_cache(name: str) -> bool:
    """Return whether a buffer is a part of the cache."""
    return name.startswith(_PREFIX)
