"""Attention on the backend ``host``, and its gradients, beside PyTorch's."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from npu_ir import extract_ir
from npu_runtime import IRExecutor, TrainStep
from tests.support.backends.host_checks import check_on_host, check_training_on_host
from tests.support.backends.native_backends import HOST
from tests.support.corpus.case import Function


def heads_of(x: Tensor, heads: int) -> Tensor:
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


ATTENTIONS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "plain": F.scaled_dot_product_attention,
    "causal": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
    "scale": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, scale=0.3),
}


@pytest.mark.parametrize(("dtype", "rtol"), [(torch.float32, 1e-5), (torch.bfloat16, 1e-2)])
def test_one_query_reads_no_keys_that_a_mask_hides(dtype: torch.dtype, rtol: float) -> None:
    used, whole = 70, 300
    q, k, v = (torch.randn(2, 4, size, 16, dtype=dtype) for size in (1, whole, whole))
    k[:, :, used:], v[:, :, used:] = torch.nan, torch.inf
    visible = torch.arange(whole) < used
    added = torch.zeros(whole, dtype=dtype).masked_fill(~visible, -torch.inf)
    expected = F.scaled_dot_product_attention(q, k[:, :, :used], v[:, :, :used])

    for mask in (visible[None], added[None], visible.expand(2, 4, 1, whole).clone()):
        graph = extract_ir(Function(F.scaled_dot_product_attention), (q, k, v, mask))
        found = IRExecutor(graph, {}, backend=HOST, passes=None)(q, k, v, mask)
        torch.testing.assert_close(found, expected, rtol=rtol, atol=rtol)


@pytest.mark.parametrize("name", ATTENTIONS)
@pytest.mark.parametrize("queries", [1, 5, 130])
def test_attention_computes_what_it_does_in_pytorch(name: str, queries: int) -> None:
    torch.manual_seed(0)
    q = torch.randn(2, 3, queries, 20)
    k, v = torch.randn(2, 2, 3, 130, 20)

    check_on_host(ATTENTIONS[name], q, k, v)


@pytest.mark.parametrize("kind", ["bool", "float"])
def test_a_query_that_takes_no_key_gives_zeros(kind: str) -> None:
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 2, 3, 7, 8)
    takes = torch.rand(2, 1, 7, 7) < 0.5
    takes[0, 0, 2] = False
    mask = takes if kind == "bool" else torch.zeros(takes.shape).masked_fill(~takes, float("-inf"))

    check_on_host(lambda q, k, v, mask: F.scaled_dot_product_attention(q, k, v, mask), q, k, v, mask)


def attend_with_expanded_mask(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, mask.expand(-1, 3, 7, 7))


@pytest.mark.parametrize("kind", ["bool", "float"])
@pytest.mark.parametrize("shape", [(2, 1, 1, 7), (1, 1, 7, 1), (2, 3, 1, 1)], ids=str)
def test_a_mask_is_expanded_without_a_copy(shape: tuple[int, ...], kind: str) -> None:
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 2, 3, 7, 8)
    takes = torch.rand(shape) < 0.7
    mask = takes if kind == "bool" else torch.randn(shape)

    check_on_host(attend_with_expanded_mask, q, k, v, mask)
    check_on_host(F.scaled_dot_product_attention, q, k, v, mask.expand(2, 3, 7, 7))


def test_a_mask_that_was_captured_expanded_may_come_in_any_strides() -> None:
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 2, 3, 7, 8)
    expanded, dense = torch.randn(2, 1, 1, 7).expand(2, 3, 7, 7), torch.randn(2, 3, 7, 7)
    permuted = torch.randn(7, 7, 3, 2).permute(3, 2, 1, 0)
    graph = extract_ir(Function(F.scaled_dot_product_attention), (q, k, v, expanded))
    program = HOST.prepare(graph, HOST.lower(graph), torch.device("cpu"))

    for mask in (expanded, dense, permuted, expanded):
        expected = F.scaled_dot_product_attention(q, k, v, mask)
        results = [HOST.run(program, [q, k, v, mask])[0], torch.empty_like(expected), None]
        HOST.bind(program, [q, k, v, mask], [results[1]])()
        results[2] = HOST.capture(program, [q, k, v, mask]).outputs[0]
        constant = HOST.bind_constants(program, {3: mask})
        results.append(HOST.run(constant, [q, k, v])[0])

        for result in results:
            torch.testing.assert_close(result, expected)


def test_grouped_heads_compute_what_they_do_in_pytorch() -> None:
    torch.manual_seed(0)
    q, (k, v) = torch.randn(2, 6, 9, 8), torch.randn(2, 2, 2, 11, 8)

    check_on_host(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True), q, k, v)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, dropout_p=0.5), "no dropout, here of 0.5"),
        (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, scale=0.0), "a scale other than 0"),
    ],
)
def test_attention_that_the_native_op_lacks_stays_with_aten(call: Callable[..., Tensor], match: str) -> None:
    graph = extract_ir(Function(call), tuple(torch.randn(3, 2, 3, 7, 8)))
    (node,) = graph.nodes_of("aten.scaled_dot_product_attention.default")

    assert match in str(HOST.supports(node))


class Attention(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = torch.nn.Linear(24, 72)
        self.out = torch.nn.Linear(24, 24)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (heads_of(part, 3) for part in self.qkv(x).chunk(3, -1))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).flatten(2))


def test_a_lone_key_has_no_gradient_and_nor_has_its_query() -> None:
    torch.manual_seed(0)
    model, x = Attention(), torch.randn(3, 1, 24)
    before = model.qkv.weight.detach().clone()

    # Its steps are as long for noise as for any other gradient.
    TrainStep(model, torch.optim.Adam(model.parameters()), F.mse_loss, backend=HOST)(x, x)

    changed = (model.qkv.weight != before).any(1)
    assert not changed[:48].any()
    assert changed[48:].all()


def test_attention_trains_as_in_pytorch() -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 67, 24)

    kinds = check_training_on_host(Attention(), x, x)

    assert {"Attention", "AttentionGradient"} <= kinds
