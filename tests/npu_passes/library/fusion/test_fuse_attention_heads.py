"""Attentions that have batch and heads on one axis here and on two there become one op, too."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from npu_ir import TensorType, extract_ir
from npu_passes import Checked, PassManager, PassResult, passes_of
from npu_passes.library.fusion.fuse_attention import FuseAttention
from tests.support.corpus.case import Function
from tests.support.passes.pattern_cases import capture, op_types, reasons
from tests.support.rows import each_row

SDPA = "aten.scaled_dot_product_attention.default"
BATCH, HEADS, ROWS, COLUMNS = 2, 3, 7, 5
MERGED, SPLIT = (BATCH * HEADS, ROWS, COLUMNS), (BATCH, HEADS, ROWS, COLUMNS)


def qkv(*lead: int) -> tuple[Tensor, ...]:
    sizes = (ROWS, 8), (COLUMNS, 8), (COLUMNS, 8)
    return tuple(torch.randn(*(lead or (BATCH * HEADS,)), *size) for size in sizes)


def fused(function: Callable[..., Any], *args: Tensor) -> PassResult:
    return PassManager([FuseAttention], checked=Checked(calls=[(args, {})])).run(capture(function, *args))


def is_fused(result: PassResult) -> bool:
    found = op_types(result.graph)
    return SDPA.removeprefix("aten.") in found and "softmax.int" not in found and not reasons(result)


def split_softmax(q: Tensor, k: Tensor, v: Tensor, *, mask: Any = lambda scores: scores) -> Tensor:
    """Return an attention whose products are of 3 axes, and its softmax of 4."""
    weights = mask((q.bmm(k.mT) * 0.3).view(SPLIT)).softmax(-1)
    return weights.view(MERGED).bmm(v)


@each_row("function", {
    "view": split_softmax,
    "reshape": (lambda q, k, v: q.bmm(k.mT).reshape(SPLIT).softmax(-1).reshape(MERGED) @ v),
    "unflatten": (
        lambda q, k, v: (
            nn.functional.dropout(q.bmm(k.mT).unflatten(0, (2, 3)).softmax(-1), 0.1, False).flatten(0, 1)
            @ v
        )
    ),
    "a product of 4": (lambda q, k, v: (q.bmm(k.mT).view(SPLIT) * 0.5).softmax(-1) @ v.view(2, 3, 5, 8)),
    "a product of 3": (
        lambda q, k, v: (q.view(2, 3, 7, 8) @ k.view(2, 3, 5, 8).mT).view(MERGED).softmax(-1) @ v
    ),
    "a result of 4": (
        lambda q, k, v: q.bmm(k.mT).view(SPLIT).softmax(-1).view(MERGED).bmm(v).view(2, 3, 7, 8)
    ),
    "a result of other axes": (
        lambda q, k, v: q.bmm(k.mT).view(SPLIT).softmax(-1).view(MERGED).bmm(v).view(6, 8, 7)
    ),
    "a softmax of 3 between products of 4": (
        lambda q, k, v: (
            (q.view(2, 3, 7, 8) @ k.view(2, 3, 5, 8).mT).view(MERGED).softmax(-1).view(SPLIT)
            @ v.view(2, 3, 5, 8)
        )
    ),
    "two results": (lambda q, k, v: (lambda y: (y, y.view(2, 3, 7, 8)))(split_softmax(q, k, v))),
})  # fmt: skip
def test_reshapes_between_the_products_are_seen_through(function: Any) -> None:
    assert is_fused(fused(function, *qkv()))


@each_row("mask, size", {
    "of the batch": (lambda s, m: s + m, (2, 1, 7, 5)),
    "of the heads": (lambda s, m: s + m, (3, 7, 5)),
    "of rows and columns": (lambda s, m: m + s, (7, 5)),
    "filled": (lambda s, m: s.masked_fill(m > 1, -math.inf), (2, 1, 1, 5)),
    "where": (lambda s, m: torch.where(m > 1, -1e38, s), SPLIT),
})  # fmt: skip
def test_masks_of_the_split_scores_are_kept(mask: Any, size: Any) -> None:
    m = torch.randn(size)

    result = fused(lambda q, k, v, m: split_softmax(q, k, v, mask=lambda s: mask(s, m)), *qkv(), m)

    assert is_fused(result)


def test_masks_of_the_merged_scores_are_split(subtests: pytest.Subtests) -> None:
    mask_rows = {"added": (lambda s, m: s + m), "filled": (lambda s, m: s.masked_fill(m > 1, -1e38))}
    for size in [MERGED, (6, 1, 5), (6, 7, 1), (1, 7, 5), (7, 5)]:
        for case, mask in mask_rows.items():
            with subtests.test(size=size, case=case):

                def function(q: Tensor, k: Tensor, v: Tensor, m: Tensor) -> Tensor:
                    return mask(q.bmm(k.mT), m).view(SPLIT).softmax(-1).view(MERGED).bmm(v)

                assert is_fused(fused(function, *qkv(), torch.randn(size)))


def test_what_baddbmm_adds_is_split_and_masks_behind_are_added_to_it() -> None:
    def function(q: Tensor, k: Tensor, v: Tensor, slopes: Tensor, mask: Tensor) -> Tensor:
        scores = slopes.baddbmm(q, k.mT, beta=1, alpha=0.3)
        weights = (scores.view(SPLIT) + mask).softmax(-1)
        return weights.view(MERGED).bmm(v)

    assert is_fused(fused(function, *qkv(), torch.randn(6, 1, 5), torch.randn(2, 1, 7, 5)))


@each_row("lead", [(1, 3), (3, 1), (1, 1)])
def test_an_axis_of_one_is_split_like_any_other(lead: Any) -> None:
    number = math.prod(lead)

    def function(q: Tensor, k: Tensor, v: Tensor, m: Tensor, n: Tensor) -> Tensor:
        scores = (q.bmm(k.mT) + m).view(*lead, 7, 5) + n
        return scores.softmax(-1).view(number, 7, 5).bmm(v)

    args = (*qkv(number), torch.randn(number, 7, 5), torch.randn(lead[1], 7, 5))

    assert is_fused(fused(function, *args))


def heads(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Return an attention of 3 axes with a softmax of 4, that puts the heads together behind it."""
    q, k, v = (
        item.view(*item.shape[:2], 3, 8).transpose(1, 2).reshape(-1, item.shape[1], 8) for item in (q, k, v)
    )
    scores = q.bmm(k.mT)
    y = scores.view(-1, 3, *scores.shape[1:]).softmax(-1).view(scores.shape).bmm(v)
    return y.view(-1, 3, *y.shape[1:]).transpose(1, 2).reshape(-1, y.shape[1], 24)


def test_heads_are_put_together_without_a_copy() -> None:
    args = (torch.randn(2, 7, 24), torch.randn(2, 5, 24), torch.randn(2, 5, 24))
    manager = PassManager(passes_of("fuse"), checked=Checked(calls=[(args, {})]))
    graph = manager.run(capture(heads, *args)).graph

    (node,) = graph.nodes_of(SDPA)
    assert node.outputs[0].users[0].outputs[0].type == TensorType((2, 7, 3, 8), torch.float32)
    assert [item.producer.op_type for item in node.inputs] == ["aten.permute.default"] * 3
    assert not list(graph.nodes_of("aten.clone.default"))


def test_open_sizes_are_split() -> None:
    batch, length = torch.export.Dim("batch", min=2, max=64), torch.export.Dim("length", min=2, max=512)
    shapes = {0: batch, 1: length}
    args = tuple(torch.randn(2, 7, 24) for _ in range(3))
    graph = extract_ir(Function(heads), args, dynamic_shapes=((shapes,) * 3,))

    result = PassManager([FuseAttention], checked=Checked(calls=[(args, {})])).run(graph)

    (node,) = result.graph.nodes_of(SDPA)
    assert node.outputs[0].tensor_type.shape[1] == 3
    assert not reasons(result)


@each_row("function, reason", {
    "other rows": (lambda q, k, v: q.bmm(k.mT).view(6, 5, 7).softmax(-1).view(MERGED).bmm(v),
        "'view_1' makes f32[6, 7, 5] of f32[6, 5, 7] between softmax and product: it does not just split"),
    "two axes": (lambda q, k, v: q.bmm(k.mT).view(6, 35).softmax(-1).view(MERGED).bmm(v),
        "'view_1' makes f32[6, 7, 5] of f32[6, 35]"),
    "over two axes": (lambda q, k, v: q.bmm(k.mT).view(42, 5).view(SPLIT).softmax(-1).view(MERGED).bmm(v),
        "'view_1' makes f32[2, 3, 7, 5] of f32[42, 5]"),
    "other heads": (
        lambda q, k, v: (
            q.bmm(k.mT).view(3, 2, 7, 5).softmax(-1).view(MERGED).view(SPLIT) @ v.view(2, 3, 5, 8)
        ),
        "splits or merges other heads than there were",
    ),
    "scores": (lambda q, k, v: (lambda s: (s.view(SPLIT).softmax(-1).view(MERGED).bmm(v), s))(q.bmm(k.mT)),
        "%bmm is read elsewhere, too"),
    "weights": (lambda q, k, v: (lambda w: (w.view(MERGED).bmm(v), w))(q.bmm(k.mT).view(SPLIT).softmax(-1)),
        "%softmax is read elsewhere, too"),
    "another view": (
        lambda q, k, v: (
            q.bmm(k.mT).view(6, 1, 7, 5).add(v.new_zeros(1, 3, 7, 5)).softmax(-1)[:, 0].bmm(v)
        ),
        "",
    ),
})  # fmt: skip
def test_other_reshapes_are_refused_with_a_reason(function: Any, reason: str) -> None:
    graph = capture(function, *qkv())

    result = PassManager([FuseAttention]).run(graph)

    assert str(result.graph) == str(graph)
    assert [reason in item for item in reasons(result)] == [True] * bool(reason)


def test_heads_that_are_split_in_two_open_sizes_are_refused() -> None:
    def function(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return (q @ k.mT).flatten(0, 1).softmax(-1).unflatten(0, q.shape[:2]) @ v

    shapes = {axis: torch.export.Dim(name, min=2, max=64) for axis, name in enumerate(("batch", "heads"))}
    graph = extract_ir(Function(function), qkv(BATCH, HEADS), dynamic_shapes=((shapes,) * 3,))

    (reason,) = reasons(PassManager([FuseAttention]).run(graph))

    assert "splits or merges axes that are both of open sizes: batch, heads" in reason


def test_an_empty_axis_does_not_hide_that_heads_differ() -> None:
    def function(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return (q @ k.mT).view(3, 2, 0, 5).softmax(-1) @ v.view(3, 2, 5, 8)

    (reason,) = reasons(fused(function, torch.randn(4, 0, 8), torch.randn(4, 5, 8), torch.randn(6, 5, 8)))

    assert "'view' makes f32[3, 2, 0, 5] of f32[4, 0, 5]" in reason
