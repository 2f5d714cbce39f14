"""Small language models of transformers, with random weights."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    AutoModelForSpeechSeq2Seq,
    PreTrainedTokenizerFast,
)

VOCABULARY = 96
_SIZES = {"num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 48}
_LAYERS = {"layers": 2, "attention_heads": 4, "ffn_dim": 48}
_GROUPED = {**_SIZES, "num_key_value_heads": 2}

# What each configuration has besides its vocabulary.
CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "gpt2": {"n_layer": 2, "n_embd": 32, "n_head": 4, "n_positions": 256},
    "llama": _GROUPED,
    "mistral": {**_GROUPED, "sliding_window": 8, "head_dim": 8},
    "qwen2": _GROUPED,
    "qwen3": {**_GROUPED, "head_dim": 8},
    "gemma": {**_SIZES, "num_key_value_heads": 1, "head_dim": 8},
    "gemma2": {**_GROUPED, "head_dim": 8, "sliding_window": 8},
    "phi": _SIZES,
    "phi3": _GROUPED,
    "gpt_neox": _SIZES,
    "olmo2": _GROUPED,
    "opt": {
        "num_hidden_layers": 2,
        "hidden_size": 32,
        "word_embed_proj_dim": 32,
        "num_attention_heads": 4,
        "ffn_dim": 48,
        "max_position_embeddings": 256,
    },
    "mixtral": {**_GROUPED, "num_local_experts": 4},
    "mamba": {"num_hidden_layers": 2, "hidden_size": 32, "state_size": 8},
}

_ENCODER = {f"{part}_{name}": size for part in ("encoder", "decoder") for name, size in _LAYERS.items()}

# The same of models with an encoder.
WITH_ENCODER: dict[str, dict[str, Any]] = {
    "t5": {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4, "is_gated_act": True},
    "bart": {**_ENCODER, "d_model": 32, "max_position_embeddings": 256, "forced_eos_token_id": None},
    "marian": {**_ENCODER, "d_model": 32, "max_position_embeddings": 256, "forced_eos_token_id": None},
    "whisper": {
        **_ENCODER,
        "d_model": 32,
        "max_target_positions": 256,
        "max_source_positions": 30,
        "num_mel_bins": 8,
    },
}


def configuration(name: str, **changes: Any) -> Any:
    """Return a configuration in which no token ends a text."""
    given = {"vocab_size": VOCABULARY, "bos_token_id": 1, "eos_token_id": None, "pad_token_id": 0}
    if name in WITH_ENCODER:
        given["decoder_start_token_id"] = 1
    return AutoConfig.for_model(name, **{**given, **{**CONFIGURATIONS, **WITH_ENCODER}[name], **changes})


def model_class(name: str) -> Any:
    """Return the class of transformers that makes the model."""
    if name == "whisper":
        return AutoModelForSpeechSeq2Seq
    return AutoModelForSeq2SeqLM if name in WITH_ENCODER else AutoModelForCausalLM


def language_model(name: str, **changes: Any) -> Any:
    """Return a model in evaluation mode, of random weights that tell tokens apart."""
    torch.manual_seed(0)
    model = model_class(name).from_config(configuration(name, **changes)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(4)
    return model


def generate(model: Any, tokens: Tensor, count: int, **options: Any) -> Tensor:
    """Return what transformers generates, greedily unless the options say otherwise."""
    options = {"do_sample": False, "eos_token_id": None, "pad_token_id": 0, **options}
    with torch.no_grad():
        found: Tensor = model.generate(tokens, max_new_tokens=count, **options)
    return found


def save_language_model(folder: Path, name: str = "llama") -> None:
    """Write a model and a tokenizer, whose tokens are bytes, to a folder."""
    language_model(name, vocab_size=256).save_pretrained(folder, max_shard_size="40KB")
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={item: index for index, item in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(folder)


def save_word_tokenizer(folder: Path, words: Sequence[str]) -> None:
    """Write a tokenizer like that of Llama: a token is a word after a space, and the first one has none."""
    vocabulary = {f"\u2581{word}": index for index, word in enumerate(words)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=next(iter(vocabulary))))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(folder)
