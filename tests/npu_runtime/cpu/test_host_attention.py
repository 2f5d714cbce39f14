"""Attention as people write it out is one op in the pipeline `host`, and computes what eager PyTorch does."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from npu_ir import extract_ir
from npu_passes import PassManager
from npu_runtime import IRExecutor
from tests.support.corpus.case import Function, Holding
from tests.support.rows import each_row

SDPA = "aten.scaled_dot_product_attention.default"
INF, LENGTH = -math.inf, 20
SCALE = 16**-0.5


def later(q: Tensor) -> Tensor:
    position = torch.arange(q.shape[-2])
    return position[None, :] > position[:, None]


def least(q: Tensor) -> float:
    return torch.finfo(q.dtype).min


def repeat(x: Tensor) -> Tensor:
    """Return keys or values for two heads of queries each, as transformers' ``repeat_kv`` does."""
    batch, heads, rows, size = x.shape
    return x[:, :, None].expand(batch, heads, 2, rows, size).reshape(batch, 2 * heads, rows, size)


def nano(m: Any, q: Tensor, k: Tensor, v: Tensor, b: Tensor) -> Tensor:
    scores = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
    scores = scores.masked_fill(m.weight[:, :, : q.shape[2], : q.shape[2]] == 0, INF)
    return F.dropout(F.softmax(scores, dim=-1), 0.0, True) @ v


def eager(m: Any, q: Tensor, k: Tensor, v: Tensor, b: Tensor) -> Tensor:
    mask = torch.where(b, least(q), 0.0).to(q.dtype)
    weights = torch.matmul(q, k.transpose(2, 3)) * SCALE + mask
    weights = F.softmax(weights, dim=-1, dtype=torch.float32).to(q.dtype)
    return torch.matmul(F.dropout(weights, p=0.1, training=False), v).transpose(1, 2).contiguous()


FORMS = {
    "as nanoGPT": nano,
    "as transformers": eager,
    "no mask": lambda m, q, k, v, b: (q * SCALE @ k.mT).softmax(-1) @ v,
    "scale on the key": lambda m, q, k, v, b: (q @ (k * SCALE).mT).softmax(-1) @ v,
    "divided": lambda m, q, k, v, b: (q @ k.mT / 4.0).softmax(-1) @ v,
    "filled with -inf": lambda m, q, k, v, b: (q @ k.mT * SCALE).masked_fill(b, INF).softmax(-1) @ v,
    "filled with the least": lambda m, q, k, v, b: (q @ k.mT).masked_fill(b, least(q)).softmax(-1) @ v,
    "where": lambda m, q, k, v, b: torch.where(b, INF, q @ k.mT * SCALE).softmax(-1) @ v,
    "added": lambda m, q, k, v, b: (q @ k.mT + torch.zeros(()).masked_fill(b, INF)).softmax(-1) @ v,
    "causal": lambda m, q, k, v, b: (q @ k.mT).masked_fill(later(q), INF).softmax(-1) @ v,
    "causal by -1e9": lambda m, q, k, v, b: (q @ k.mT).masked_fill(later(q), -1e9).softmax(-1) @ v,
    "causal and padded": lambda m, q, k, v, b: (q @ k.mT).masked_fill(later(q) | b, INF).softmax(-1) @ v,
    "grouped": lambda m, q, k, v, b: (
        (q @ repeat(k[:, ::2]).mT * SCALE).masked_fill(b, INF).softmax(-1) @ repeat(v[:, ::2])
    ),
}


@pytest.mark.parametrize("name", FORMS)
def test_an_attention_written_out_is_one_op_with_the_results_of_eager(name: str) -> None:
    q, k, v = (torch.randn(2, 4, LENGTH, 16) for _ in range(3))
    hidden = torch.rand(2, 1, LENGTH, LENGTH) > 0.5
    hidden[0, 0, 3] = True
    model = Holding(FORMS[name], weight=torch.nn.Buffer(torch.ones(1, 1, 32, 32).tril()))
    args = (q, k, v, hidden)
    expected = model(*args)
    graph = extract_ir(model, args)

    result = PassManager.of_pipeline("host").run(graph)

    assert [node.op_type for node in result.graph.nodes_of(SDPA)] == [SDPA]
    found = IRExecutor(graph, weights=model.state_dict(), passes="host")(*args)
    torch.testing.assert_close(found, expected, equal_nan=True)


@each_row("name", ["as transformers", "causal and padded"])
def test_bfloat16_is_one_op_where_its_softmax_is_of_float32(name: Any) -> None:
    args = tuple(torch.randn(2, 4, LENGTH, 16).bfloat16() for _ in range(3))
    hidden = torch.rand(2, 1, LENGTH, LENGTH) > 0.5
    hidden[0, 0, 3] = True
    model = Holding(FORMS[name], weight=torch.zeros(1))
    graph = extract_ir(model, (*args, hidden))
    expected = model(*args, hidden)

    fused = PassManager.of_pipeline("host").run(graph).graph
    found = IRExecutor(graph, weights=model.state_dict(), passes="host")(*args, hidden)

    assert len(list(fused.nodes_of(SDPA))) == (name == "as transformers")
    assert found.dtype == expected.dtype
    torch.testing.assert_close(found, expected, equal_nan=True, atol=0.05, rtol=0.05)


def test_one_small_attention_is_worth_a_partition_of_its_own() -> None:
    args = tuple(torch.randn(1, 4, 16, 16) for _ in range(3))
    graph = extract_ir(Function(lambda q, k, v: (q @ k.mT).softmax(-1) @ v), args)

    executor = IRExecutor(graph)

    assert [item.backend for item in executor.instructions] == ["host"]
