"""Capture of a language model with its cache: one graph for a token, and one for many at once."""

from __future__ import annotations

import importlib.util
import inspect
import os
import types
import warnings
from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from npu_ir import ConversionError, Graph, NpuError, extract_ir
from npu_ir.core.node import external_names
from npu_ir.errors import UsageError
from npu_passes import Pass, PassManager
from npu_passes.library.quantization.quantize_weights import QuantizeWeights
from npu_runtime.decoders.model_on_meta import constant_buffers, model_on_meta, sinusoidal_positions
from npu_runtime.decoders.saved_model import read_configuration, read_generation
from npu_runtime.errors import GenerationWarning

if TYPE_CHECKING:
    from npu_runtime.decoders.encoder import Encoder
    from npu_runtime.decoders.fixed_cache import FixedCache

_TRANSFORMERS = "transformers"
# Options of generate() of transformers that change which tokens are chosen, besides those of `Sampling`.
_NOT_FOLLOWED = (
    *("forced_bos_token_id", "forced_eos_token_id", "suppress_tokens", "begin_suppress_tokens"),
    *("bad_words_ids", "no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "min_length"),
    *("min_new_tokens", "num_beams", "sequence_bias", "exponential_decay_length_penalty"),
    *("repetition_penalty", "encoder_repetition_penalty", "forced_decoder_ids", "guidance_scale"),
    *("watermarking_config", "penalty_alpha", "force_words_ids", "constraints", "stop_strings"),
    *("min_p", "typical_p", "top_h", "epsilon_cutoff", "eta_cutoff"),
)
# Models that place their masks by the number of keys, which is that of the whole cache here.
_WITHOUT_FIXED_CACHE = ("gpt_neo",)
_USUAL_LENGTH = 2048
_USUAL_SOURCE_LENGTH = 512
QUANTIZATIONS: Mapping[str, Pass] = types.MappingProxyType(
    {
        "int8": QuantizeWeights(),
        "int4": QuantizeWeights(bits=4),
        "int8-dynamic": QuantizeWeights(activations="int8"),
        "int4-dynamic": QuantizeWeights(bits=4, activations="int8"),
    }
)


@dataclass(frozen=True, slots=True)
class DecoderGraphs:
    """The graphs of a language model with a cache of fixed size.

    Each takes tokens ``[batch, count]`` of int64, the position of the first one (a 0-d int64), for each row
    the number of positions at its beginning that are padding ``[batch]``, and the place among the tokens (a
    0-d int64) after which logits ``[batch, vocabulary]`` are returned. They update the same cache. Those of a
    model with an encoder take a list besides: the mask of a source of tokens, and the results of the encoder.

    Attributes:
        by_count: The graphs by the number of tokens that a call takes; one token always is among them.
        batch: The number of rows.
        length: The number of positions of the cache.
        constants: Tensors besides the weights: those of position encodings, and the empty cache.
        stop: The tokens that end a text, as the model's configuration of generation has them.
        vocabulary: The number of tokens that there are.
        is_recurrent: Whether a layer has a state in place of keys and values, which padding would change.
        encoder: The graph of the encoder, where the model has one. It takes a source: tokens, int64 ``[batch,
            source_length]``, and which of them are not padding, bool of the same shape; or features.
        start: The token that texts begin with, where the model has an encoder and says so.
        positions: Parameters that checkpoints may lack, because the model computes them.
    """

    by_count: Mapping[int, Graph]
    batch: int
    length: int
    constants: Mapping[str, Tensor] = field(repr=False)
    stop: tuple[int, ...]
    vocabulary: int
    is_recurrent: bool = False
    encoder: Graph | None = None
    start: int | None = None
    positions: Mapping[str, Tensor] = field(default_factory=dict, repr=False)

    @property
    def reads_tokens(self) -> bool:
        """True if the source of the encoder is tokens."""
        return self.encoder is not None and len(self.encoder.inputs) == 2


def extract_decoder(
    model: Any,
    *,
    max_batch: int = 1,
    max_length: int | None = None,
    counts: Sequence[int] = (64,),
    max_source_length: int | None = None,
    quantize: str | Pass | None = None,
) -> DecoderGraphs:
    """Capture a language model of transformers with a cache of fixed size, without weights.

    It is a causal one (GPT-2, Llama), or has an encoder of text (T5) or sound (Whisper). It is built anew on
    ``meta`` by its configuration: no memory of its size is needed. A `GenerationWarning` names options of
    generation that come with it and that a `Decoder` does not follow.

    Args:
        model: A model, its configuration, or the path of a folder with one; nothing is downloaded.
        max_batch: The number of rows that are generated at once.
        max_length: The number of positions of the cache: of a prompt and what is generated after it. By
            default 2,048, or as many as the model has.
        counts: Numbers of tokens of a prompt that one call takes, besides one. A model with a recurrent state
            takes one.
        max_source_length: The number of tokens that the encoder reads, if it reads tokens: by default 512, or
            as many as the model has positions. Shorter sources are padded.
        quantize: ``"int8"`` or ``"int4"``, what weights of linear layers become when they are bound;
            ``"int8-dynamic"`` or ``"int4-dynamic"``: inputs are rounded to int8 besides, in each call. Or a
            pass that does it, such as ``QuantizeWeights(bits=4, skip=("lm_head.weight",))``.

    Raises:
        ConversionError: The model cannot be captured; it keeps something else than keys and values; it has
            a buffer that no checkpoint has and that is not initialized; or its encoder reads something else
            than text or sound.
        UsageError: There is no such folder, or it has no configuration; a number is not positive, the model
            has fewer positions, transformers is not installed, or there is no such quantization.
    """
    require_transformers()
    passes = _quantization_of(quantize)
    _require_numbers(None, max_batch=[max_batch], counts=counts)
    try:
        return _capture(model, max_batch, max_length, counts, max_source_length, passes)
    except NpuError:
        raise
    except Exception as error:  # of transformers, of any type
        reason = (str(error).strip() or type(error).__name__).partition("\n")[0]
        raise ConversionError(
            f"the model cannot be captured with a cache: {type(error).__name__}: {reason}",
            where=str(model) if isinstance(model, (str, os.PathLike)) else "extract_decoder",
            fix="see whether transformers generates with it and cache_implementation='static', or capture one"
            " step by extract_ir",
        ) from error


def _capture(
    model: Any,
    max_batch: int,
    max_length: int | None,
    counts: Sequence[int],
    max_source_length: int | None,
    passes: Sequence[Pass],
) -> DecoderGraphs:
    config = _configuration_of(model)
    max_length = _length_of(config, _USUAL_LENGTH, max_length=max_length)
    from npu_runtime.decoders.fixed_cache import FixedCache

    made = model_on_meta(config, model)
    encoder = _encoder_of(made, max_batch, max_source_length)
    constants = constant_buffers(made, model)
    cache = FixedCache(made, max_batch, max_length, encoder)
    at_once = (1,) if cache.is_recurrent else (1, *(count for count in counts if count <= max_length))
    by_count = {
        count: _extract(made, cache, encoder, max_batch, max_length, count) for count in sorted(set(at_once))
    }
    constants |= _empty_cache(made)
    _require_state(made, model, by_count[1], constants)
    generation = _generation_of(model, made)
    return DecoderGraphs(
        {count: _rewrite(graph, passes) for count, graph in by_count.items()},
        max_batch,
        max_length,
        constants,
        _stop_tokens(generation),
        made.config.get_text_config(decoder=True).vocab_size,
        cache.is_recurrent,
        _rewrite(encoder.graph, passes) if encoder else None,
        _start_token(generation) if encoder else None,
        sinusoidal_positions(made),
    )


def _require_state(made: Any, model: Any, graph: Graph, constants: Mapping[str, Tensor]) -> None:
    """Refuse a graph that keeps nothing of a token, or reads a buffer whose content nobody knows."""
    name = type(made).__name__
    if not graph.updates or made.config.model_type in _WITHOUT_FIXED_CACHE:
        raise ConversionError(
            f"{name} does not write its keys and values, or its state, into a cache of fixed size",
            where="extract_decoder",
            fix="generate with transformers",
        )
    for unknown in missing_weights(graph, {*made.state_dict(), *constants}):
        raise ConversionError(
            f"{name} has a buffer {unknown!r} that is in no checkpoint, and that its initialization does not"
            " fill",
            where="extract_decoder",
            fix="register it as persistent, or fill it where the model is initialized"
            + ("" if isinstance(model, nn.Module) else "; or give the model itself, with data in it"),
        )


def missing_weights(graph: Graph, known: AbstractSet[str]) -> list[str]:
    """Return the names of the weights of a graph that have no known name."""
    return [names[0] for names in map(external_names, graph.weights) if known.isdisjoint(names)]


def _length_of(config: Any, usual: int, **given: int | None) -> int:
    """Return a length that is given by name, or else the usual one if the model has as many positions."""
    text = config.get_text_config(decoder=True)
    named = (getattr(text, name, None) for name in ("max_position_embeddings", "max_target_positions"))
    positions = next((number for number in named if number is not None and number > 0), None)
    ((name, length),) = given.items()
    if length is None:
        return min(usual, positions or usual)
    _require_numbers(positions, **{name: [length]})
    return length


def _encoder_of(model: Any, batch: int, max_source_length: int | None) -> Encoder | None:
    from npu_runtime.decoders.encoder import Encoder

    source_length = _length_of(model.config, _USUAL_SOURCE_LENGTH, max_source_length=max_source_length)
    encoder = Encoder(model, batch, source_length) if model.config.is_encoder_decoder else None
    if max_source_length is not None and (encoder is None or not encoder.reads_tokens):
        raise UsageError(
            f"max_source_length is given, and {model.config.model_type} has no encoder of tokens",
            where="extract_decoder",
            fix="leave it out",
        )
    return encoder


def _empty_cache(model: nn.Module) -> dict[str, Tensor]:
    from npu_runtime.decoders.fixed_cache import is_cache

    # One element each: an executor makes the memory of its state by itself.
    return {
        name: torch.zeros((), dtype=item.dtype).expand(item.shape)
        for name, item in model.named_buffers()
        if is_cache(name)
    }


def _stop_tokens(generation: Any) -> tuple[int, ...]:
    stop = generation.eos_token_id
    return tuple(stop) if isinstance(stop, (list, tuple)) else () if stop is None else (stop,)


def _quantization_of(given: str | Pass | None) -> list[Pass]:
    if given is None or isinstance(given, Pass):
        return [] if given is None else [given]
    if not isinstance(given, str) or given not in QUANTIZATIONS:
        raise UsageError(
            f"there is no quantization {given!r}, but {', '.join(QUANTIZATIONS)}",
            where="extract_decoder",
            fix="name one of these, or give a pass: QuantizeWeights(bits=4, group=64)",
        )
    return [QUANTIZATIONS[given]]


def _rewrite(graph: Graph, passes: Sequence[Pass]) -> Graph:
    return PassManager(passes).optimize(graph) if passes else graph


def _require_numbers(positions: int | None, **given: Sequence[int]) -> None:
    for name, numbers in given.items():
        if not isinstance(numbers, Collection):  # a set, too
            raise UsageError(
                f"{name} is a sequence of positive integers, not {numbers!r}",
                where="extract_decoder",
                fix=f"{name}=(64,)",
            )
        for number in numbers:
            if type(number) is not int or number < 1:
                raise UsageError(f"{name} has positive integers, not {number!r}", where="extract_decoder")
            if positions is not None and number > positions:
                raise UsageError(
                    f"the model has {positions} positions, and {name} is {number}",
                    where="extract_decoder",
                    fix=f"give a smaller {name}, or change the positions of the configuration",
                )


def require_transformers() -> None:
    """Raise a UsageError if transformers is not installed."""
    if importlib.util.find_spec(_TRANSFORMERS) is None:
        raise UsageError(
            "decoders are captured from models of transformers, which is not installed",
            fix='python -m pip install "npu-runtime[transformers]"',
        )


def _configuration_of(model: Any) -> Any:
    given = getattr(model, "config", None) if isinstance(model, nn.Module) else model
    return given if hasattr(given, "model_type") else read_configuration(model)


def _generation_of(model: Any, made: Any) -> Any:
    """Return the configuration of generation that comes with a model, or that its configuration implies."""
    if isinstance(model, nn.Module):
        found: Any = model.generation_config
    else:
        saved = read_generation(model) if isinstance(model, (str, os.PathLike)) else None
        found = made.generation_config if saved is None else saved
    ignored = [name for name in _NOT_FOLLOWED if getattr(found, name, None) not in (None, 0, 1, [], False)]
    if ignored:
        warnings.warn(
            f"the model comes with {', '.join(ignored)} for generate() of transformers,"
            " which a Decoder does not follow: its tokens can be others",
            GenerationWarning,
            stacklevel=4,
        )
    return found


def _start_token(generation: Any) -> int | None:
    """Return the one token that all rows begin with; None if there is none."""
    start: Any = generation.decoder_start_token_id
    start = generation.bos_token_id if start is None else start
    if isinstance(start, list):
        start = start[0] if len(set(start)) == 1 else None
    return None if start is None else int(start)


def _extract(
    model: Any, cache: FixedCache, encoder: Encoder | None, batch: int, length: int, count: int
) -> Graph:
    original = type(model).forward
    accepted = inspect.signature(original).parameters
    from npu_runtime.decoders.fixed_cache import name_of_cache

    def forward(
        self: Any,
        tokens: Tensor,
        start: Tensor,
        padding: Tensor,
        last: Tensor,
        source: Sequence[Tensor] | None = None,
    ) -> Tensor:
        cache.begin(start)
        device = tokens.device
        visible = torch.arange(length, device=device)[None] >= padding[:, None]
        positions = torch.arange(count, device=device)[None] + (start - padding[:, None])
        prefix = "decoder_" if encoder else ""
        given = {
            f"{prefix}input_ids": tokens,
            f"{prefix}position_ids": positions.clamp(min=0),
            "logits_to_keep": last[None],
            "use_cache": True,
            name_of_cache(self): cache.cache,
        }
        if not cache.is_recurrent:
            given[f"{prefix}attention_mask"] = visible
        if encoder and source is not None:
            given.update(encoder.arguments(cache.cache, source))
        result = original(self, **{name: item for name, item in given.items() if name in accepted})
        logits: Tensor = result.logits
        if "logits_to_keep" in accepted:
            return logits[:, 0]
        return logits.index_select(1, last[None])[:, 0]

    tokens = torch.zeros(batch, count, dtype=torch.int64, device="meta")
    number = torch.zeros((), dtype=torch.int64, device="meta")
    model.forward = types.MethodType(forward, model)
    try:
        with torch.no_grad():
            source = () if encoder is None else (encoder.read,)
            return extract_ir(model, (tokens, number, tokens[:, 0], number.clone(), *source))
    finally:
        del model.forward
