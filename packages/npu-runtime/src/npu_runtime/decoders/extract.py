"""Capture of a language model with its cache: one graph for a token, and one for many at once."""

from __future__ import annotations

import importlib.util
import inspect
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from npu_ir import ConversionError, Graph, extract_ir
from npu_ir.errors import UsageError
from npu_passes import Pass, PassManager
from npu_passes.library.quantization.quantize_weights import QuantizeWeights

if TYPE_CHECKING:
    from npu_runtime.decoders.fixed_cache import FixedCache

_TRANSFORMERS = "transformers"
_USUAL_LENGTH = 2048
QUANTIZATIONS: Mapping[str, Pass] = types.MappingProxyType(
    {"int8": QuantizeWeights(), "int4": QuantizeWeights(bits=4)}
)


@dataclass(frozen=True, slots=True)
class DecoderGraphs:
    """The graphs of a language model with a cache of fixed size.

    Each takes tokens ``[batch, count]`` of int64, the position of the first one (a 0-d int64), for each row
    the number of positions at its beginning that are padding ``[batch]``, and the place among the tokens (a
    0-d int64) after which logits ``[batch, vocabulary]`` are returned. They update the same cache.

    Attributes:
        by_count: The graphs by the number of tokens that a call takes; one token always is among them.
        batch: The number of rows.
        length: The number of positions of the cache.
        constants: Tensors besides the weights: those of position encodings, and the empty cache.
        stop: The tokens that end a text, as the configuration of the model has them.
        vocabulary: The number of tokens that there are.
        is_recurrent: Whether a layer has a state in place of keys and values, which padding would change.
    """

    by_count: Mapping[int, Graph]
    batch: int
    length: int
    constants: Mapping[str, Tensor] = field(repr=False)
    stop: tuple[int, ...]
    vocabulary: int
    is_recurrent: bool = False


def extract_decoder(
    model: Any,
    *,
    max_batch: int = 1,
    max_length: int | None = None,
    counts: Sequence[int] = (64,),
    quantize: str | Pass | None = None,
) -> DecoderGraphs:
    """Capture a causal language model of transformers with a cache of fixed size, without weights.

    The model is built anew on ``meta`` by its configuration: no memory of its size is needed.

    Args:
        model: A model, its configuration, or the path of a folder with one.
        max_batch: The number of rows that are generated at once.
        max_length: The number of positions of the cache: of a prompt and what is generated after it. By
            default 2,048, or as many as the model has.
        counts: Numbers of tokens of a prompt that one call takes, besides one. A model with a recurrent state
            takes one.
        quantize: ``"int8"`` (a scale for a row) or ``"int4"`` (a scale for 32 elements): the weights of
            linear layers are quantized when they are bound. Or a pass that does it, such as
            ``QuantizeWeights(bits=4, skip=("lm_head.weight",))``.

    Raises:
        ConversionError: The model cannot be captured; or it keeps something else than keys and values.
        UsageError: A number is not positive, the model has fewer positions, transformers is not installed, or
            there is no such quantization.
    """
    require_transformers()
    passes = _quantization_of(quantize)
    config = _configuration_of(model)
    max_length = _length_of(config, max_length)
    _require_numbers(max_batch=[max_batch], counts=counts)
    from npu_runtime.decoders.fixed_cache import FixedCache, is_cache

    made = _on_meta(config, getattr(model, "dtype", None))
    constants = _constant_buffers(made)
    cache = FixedCache(made, max_batch, max_length)
    by_count = {}
    for count in sorted({1, *(() if cache.is_recurrent else counts)}):
        if count <= max_length:
            graph = _extract(made, cache, max_batch, max_length, count)
            by_count[count] = PassManager(passes).run(graph).graph if passes else graph
    empty = {
        name: torch.zeros(item.shape, dtype=item.dtype)
        for name, item in made.named_buffers()
        if is_cache(name)
    }
    text: Any = made.config.get_text_config(decoder=True)
    return DecoderGraphs(
        by_count,
        max_batch,
        max_length,
        {**constants, **empty},
        _stop_tokens(text),
        text.vocab_size,
        cache.is_recurrent,
    )


def _length_of(config: Any, wanted: int | None) -> int:
    """Return the number of positions of the cache.

    Raises:
        UsageError: The model has fewer positions than are wanted.
    """
    positions = getattr(config.get_text_config(decoder=True), "max_position_embeddings", None)
    if wanted is None:
        return min(_USUAL_LENGTH, positions or _USUAL_LENGTH)
    _require_numbers(max_length=[wanted])
    if positions is not None and wanted > positions:
        raise UsageError(
            f"the model has {positions} positions, and max_length is {wanted}",
            where="extract_decoder",
            fix="give a smaller max_length, or change max_position_embeddings of the configuration",
        )
    return wanted


def _stop_tokens(config: Any) -> tuple[int, ...]:
    stop = config.eos_token_id
    return tuple(stop) if isinstance(stop, (list, tuple)) else () if stop is None else (stop,)


def _quantization_of(given: str | Pass | None) -> list[Pass]:
    if given is None or isinstance(given, Pass):
        return [] if given is None else [given]
    if given not in QUANTIZATIONS:
        raise UsageError(
            f"there is no quantization {given!r}, but {' and '.join(QUANTIZATIONS)}",
            where="extract_decoder",
            fix="name one of these, or give a pass: QuantizeWeights(bits=4, group=64)",
        )
    return [QUANTIZATIONS[given]]


def _require_numbers(**given: Sequence[int]) -> None:
    for name, numbers in given.items():
        for number in numbers:
            if type(number) is not int or number < 1:
                raise UsageError(f"{name} has positive integers, not {number!r}", where="extract_decoder")


def require_transformers() -> None:
    """Raise a UsageError if transformers is not installed."""
    if importlib.util.find_spec(_TRANSFORMERS) is None:
        raise UsageError(
            "decoders are captured from models of transformers, which is not installed",
            fix='pip install "npu-runtime[transformers]"',
        )


def _configuration_of(model: Any) -> Any:
    if isinstance(model, nn.Module):
        return model.config
    if hasattr(model, "model_type"):
        return model
    from transformers import AutoConfig

    return AutoConfig.from_pretrained(model)


def _on_meta(config: Any, dtype: torch.dtype | None) -> Any:
    """Return a model of random weights that have no data."""
    from transformers import AutoModelForCausalLM

    if getattr(config, "is_encoder_decoder", False):
        raise ConversionError(
            f"{config.model_type} has an encoder, whose results a decoder reads besides its cache",
            where="extract_decoder",
            fix="capture the encoder and one step of the decoder by extract_ir",
        )
    with torch.device("meta"):
        model: nn.Module = AutoModelForCausalLM.from_config(config)
    wanted = dtype or getattr(config, "dtype", None) or torch.float32  # a name in what was read from a file
    return model.to(getattr(torch, wanted) if isinstance(wanted, str) else wanted).eval()


def _constant_buffers(model: nn.Module) -> dict[str, Tensor]:
    """Return the content of buffers that no checkpoint has, which the model initializes by itself."""
    found = {}
    for path, module in model.named_modules():
        names = [name for name in module._non_persistent_buffers_set if module._buffers[name] is not None]
        if not names:
            continue
        before = dict(module._buffers)
        module._buffers.update({name: torch.empty_like(before[name], device="cpu") for name in names})
        with torch.no_grad():
            model._init_weights(module)  # type: ignore[operator]
        found.update({f"{path}.{name}" if path else name: module._buffers[name] for name in names})
        module._buffers.update(before)
    return found


def _extract(model: Any, cache: FixedCache, batch: int, length: int, count: int) -> Graph:
    original = type(model).forward
    accepted = inspect.signature(original).parameters
    from npu_runtime.decoders.fixed_cache import name_of_cache

    def forward(self: Any, tokens: Tensor, start: Tensor, padding: Tensor, last: Tensor) -> Tensor:
        cache.begin(start)
        device = tokens.device
        visible = torch.arange(length, device=device)[None] >= padding[:, None]
        positions = torch.arange(count, device=device)[None] + (start - padding[:, None])
        given = {
            **({} if cache.is_recurrent else {"attention_mask": visible}),
            "position_ids": positions.clamp(min=0),
            "logits_to_keep": last[None],
            "use_cache": True,
            name_of_cache(self): cache.cache,
        }
        result = original(self, tokens, **{name: item for name, item in given.items() if name in accepted})
        logits: Tensor = result.logits
        if "logits_to_keep" in accepted:
            return logits[:, 0]
        return logits.index_select(1, last[None])[:, 0]

    tokens = torch.zeros(batch, count, dtype=torch.int64, device="meta")
    number = torch.zeros((), dtype=torch.int64, device="meta")
    model.forward = types.MethodType(forward, model)
    try:
        with torch.no_grad():
            return extract_ir(model, (tokens, number, tokens[:, 0], number.clone()))
    finally:
        del model.forward
