"""Models of `decode.py`: Llama models of random weights, and what they have in memory."""

from __future__ import annotations

import math
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from npu_ir import Graph, InputKind, Value
from npu_runtime import Decoder, DecoderGraphs

SIZES = {
    "1M": {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128},
    "15M": {"hidden_size": 288, "num_hidden_layers": 6, "num_attention_heads": 6, "intermediate_size": 768},
    "125M": {
        "hidden_size": 768,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "intermediate_size": 2048,
    },
    "500M": {
        "hidden_size": 1280,
        "num_hidden_layers": 20,
        "num_attention_heads": 20,
        "num_key_value_heads": 4,
        "intermediate_size": 3456,
    },
}
VOCABULARY, VOCABULARY_OF_SMALLEST = 32_000, 8_000
POSITIONS = 4096


def make_model(size: str, dtype: torch.dtype) -> Any:
    """Return a model of random weights, always the same ones."""
    config = AutoConfig.for_model(
        "llama",
        **{"num_key_value_heads": SIZES[size]["num_attention_heads"], **SIZES[size]},
        vocab_size=VOCABULARY_OF_SMALLEST if size == "1M" else VOCABULARY,
        max_position_embeddings=POSITIONS,
        tie_word_embeddings=False,
    )
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(config).eval().to(dtype)


def weights_read(graph: Graph) -> set[Value]:
    """Return what calls read besides the cache: weights, and what is made of them once."""
    return {
        value
        for node in graph.body
        for value in node.inputs
        if (value.argument is not None and value.argument.kind is InputKind.PARAMETER)
        or (value.producer is not None and value.producer.in_prologue)
    }


def bytes_of(values: set[Value]) -> int:
    types = [value.tensor_type for value in values]
    return sum(math.prod(type.static_shape) * type.dtype.itemsize for type in types)


def cache_bytes(graphs: DecoderGraphs) -> int:
    caches = [item for name, item in graphs.constants.items() if name.startswith("decoder_cache")]
    return sum(item.numel() * item.itemsize for item in caches)


def read_bytes(decoder: Decoder, position: int) -> int:
    """Return the bytes that a token reads: all weights but the embedding, and the valid part of the cache."""
    graphs = decoder.graphs
    nodes = graphs.by_count[1].body
    embeddings = {node.inputs[0] for node in nodes if node.op_type == "aten.embedding.default"}
    return (
        bytes_of(weights_read(graphs.by_count[1]) - embeddings)
        + cache_bytes(graphs) // graphs.length * position
    )
