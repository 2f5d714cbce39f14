"""Attention, transformer layers, and recurrent networks, in every combination of their flags."""

from typing import Any

import torch
from torch import nn, randn
from torch.nn import functional as fn

from tests.support.corpus.case import Table, call, floats

CASES = Table(floats((2, 5, 8)))
heads = floats((2, 2, 5, 4), (2, 2, 5, 4), (2, 2, 5, 4))
function, module = CASES.function, CASES.module

# Attention

# Without gradients, eager runs a layer in eval mode as one fused operator; torch.export never does.
FUSED: dict[str, Any] = {"tolerance": 2e-5, "reason": "eager takes its fused path, torch.export does not"}


function("scaled_dot_product_attention", fn.scaled_dot_product_attention, heads,
    op="aten.scaled_dot_product_attention.default")  # fmt: skip
function("attention_boolean_mask",
    lambda q, k, v: fn.scaled_dot_product_attention(q, k, v, torch.ones(5, 5).tril().bool()),
    heads)  # fmt: skip
function("attention_float_mask",
    lambda q, k, v: fn.scaled_dot_product_attention(q, k, v, attn_mask=(q @ k.mT) * 0.1),
    heads)  # fmt: skip
function(
    "attention_with_dropout", lambda q, k, v: fn.scaled_dot_product_attention(q, k, v, dropout_p=0.4), heads
)


class SelfAttention(nn.Module):
    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, **options)

    def forward(self, x: Any, **options: Any) -> Any:
        return self.attention(x, x, x, **options)


module("multihead_attention", lambda: SelfAttention(batch_first=True))
module("multihead_attention_eval", lambda: SelfAttention(batch_first=True).eval(), **FUSED)
module("multihead_attention_dropout", lambda: SelfAttention(dropout=0.2))
module("multihead_attention_bias_kv", lambda: SelfAttention(add_bias_kv=True, add_zero_attn=True))
module(
    "multihead_attention_masked",
    lambda: SelfAttention(batch_first=True),
    lambda: call(
        randn(2, 5, 8),
        need_weights=False,
        attn_mask=torch.ones(5, 5).triu(1).bool(),
        key_padding_mask=torch.tensor([[False] * 5, [False] * 4 + [True]]),
    ),
)


@CASES.add(
    floats((3, 2, 8), (5, 2, 6), (5, 2, 4)),
    holding=lambda: {"attention": nn.MultiheadAttention(8, 2, kdim=6, vdim=4)},
)
def multihead_attention_of_other_sizes(self: Any, q: Any, k: Any, v: Any) -> Any:
    return self.attention(q, k, v)[0]


def encoder_layer(**options: Any) -> nn.TransformerEncoderLayer:
    return nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, **options)


module("encoder_layer_training", encoder_layer)
module("encoder_layer_eval", lambda: encoder_layer().eval(), **FUSED)
module("encoder_layer_eval_without_grad", lambda: encoder_layer().eval(), under=torch.no_grad, **FUSED)
module("encoder_layer_norm_first", lambda: encoder_layer(norm_first=True, activation="gelu", dropout=0.0))
module(
    "decoder_layer", lambda: nn.TransformerDecoderLayer(8, 2, 16, dropout=0.0), floats((3, 2, 8), (4, 2, 8))
)
module(
    "transformer",
    lambda: nn.Transformer(8, 2, 1, 1, 16, batch_first=True),
    lambda: call(
        randn(2, 3, 8), randn(2, 4, 8), tgt_mask=torch.ones(4, 4).triu(1).bool(), tgt_is_causal=True
    ),
)


class Rotary(nn.Module):
    def forward(self, q: Any) -> Any:
        positions = torch.arange(q.shape[1], device=q.device, dtype=torch.float32)
        frequencies = 1.0 / (10000 ** (torch.arange(0, 4, 2) / 4))
        angles = torch.outer(positions, frequencies)
        cos, sin = angles.cos()[None], angles.sin()[None]
        left, right = q.chunk(2, dim=-1)
        return torch.cat([left * cos - right * sin, right * cos + left * sin], dim=-1)


module("rotary_embedding", Rotary, floats((2, 5, 4)))
