"""Every written-out attention, and every norm after a sum, is fused in models of transformers."""

from __future__ import annotations

import os
from collections import Counter
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import pytest
import torch
import transformers
from torch import nn

from npu_ir import extract_ir
from npu_passes import Checked, PassManager, passes_of
from npu_passes.ops.fused import ADD_LAYER_NORM, ADD_RMS_NORM, LINEAR_ACTIVATION
from tests.support.tiers import thin

SDPA = "aten.scaled_dot_product_attention.default"
SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "vocab_size": 99,
    "attn_implementation": "eager",
}


def tokens() -> torch.Tensor:
    return torch.randint(0, 99, (2, 7))


def bert() -> tuple[nn.Module, dict[str, Any]]:
    mask = torch.tensor([[1] * 7, [1] * 4 + [0] * 3])
    model = transformers.BertModel(transformers.BertConfig(**SIZES))
    return model, {"input_ids": tokens(), "attention_mask": mask}


def gpt2() -> tuple[nn.Module, dict[str, Any]]:
    config = transformers.GPT2Config(n_embd=32, n_layer=2, n_head=4, vocab_size=99, n_positions=32)
    config._attn_implementation = "eager"
    return transformers.GPT2LMHeadModel(config), {"input_ids": tokens(), "use_cache": False}


def llama() -> tuple[nn.Module, dict[str, Any]]:
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES, num_key_value_heads=2))
    return model, {"input_ids": tokens(), "use_cache": False}


def t5() -> tuple[nn.Module, dict[str, Any]]:
    config = transformers.T5Config(d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, vocab_size=99)
    config._attn_implementation = "eager"
    model = transformers.T5ForConditionalGeneration(config)
    return model, {"input_ids": tokens(), "decoder_input_ids": tokens(), "use_cache": False}


def vit() -> tuple[nn.Module, dict[str, Any]]:
    sizes = {key: value for key, value in SIZES.items() if key != "vocab_size"}
    model = transformers.ViTModel(transformers.ViTConfig(**sizes, image_size=16, patch_size=4))
    return model, {"pixel_values": torch.randn(1, 3, 16, 16)}


# By model: attentions, sums with norms, and linear layers with activations.
MODELS = {
    bert: (2, {ADD_LAYER_NORM: 4, ADD_RMS_NORM: 0}, 3),
    gpt2: (2, {ADD_LAYER_NORM: 4, ADD_RMS_NORM: 0}, 2),
    llama: (2, {ADD_LAYER_NORM: 0, ADD_RMS_NORM: 4}, 2),
    t5: (6, {ADD_LAYER_NORM: 0, ADD_RMS_NORM: 10}, 4),
    vit: (2, {ADD_LAYER_NORM: 5, ADD_RMS_NORM: 0}, 3),
}


@pytest.mark.parametrize("make", thin(list(MODELS), 2, lambda make: make.__name__))
def test_everything_that_can_be_fused_is_fused(make: Any) -> None:
    attentions, sums, activations = MODELS[make]
    model, kwargs = make()
    model.eval()
    graph = extract_ir(model, (), kwargs)
    checked = Checked(weights=model.state_dict(), calls=[((), kwargs)])

    result = PassManager(passes_of("fuse"), checked=checked).run(graph)

    count = Counter(node.op_type for node in result.graph.nodes)
    assert count[SDPA] == attentions
    assert count["aten.softmax.int"] == 0
    assert {name: count[name] for name in sums} == sums
    assert count[LINEAR_ACTIVATION] == activations
    assert result.converged
