"""Masks of attentions that become one op: none, causal, of bools or of numbers, and NaN where it was."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from npu_ir import execute_ir, extract_ir
from npu_passes import Checked, PassManager, PassResult
from npu_passes.library.folding.constant_folding import ConstantFolding
from npu_passes.library.fusion.fuse_attention import FuseAttention
from tests.support.corpus.case import Function, Holding
from tests.support.passes.pattern_cases import capture, op_types, reasons
from tests.support.rows import each_row

SDPA = "aten.scaled_dot_product_attention.default"
INF = -math.inf
ROWS = COLUMNS = 5
LEAST = torch.finfo(torch.float32).min


def qkv(rows: int = ROWS, dtype: torch.dtype = torch.float32) -> tuple[Tensor, ...]:
    return tuple(torch.randn(2, 3, size, 8).to(dtype) for size in (rows, COLUMNS, COLUMNS))


def causal(q: Tensor) -> Tensor:
    position = torch.arange(q.shape[-2])
    return position[None, :] > position[:, None]


def fold(function: Callable[..., Tensor], *args: Tensor) -> PassResult:
    """Fuse attentions where constants are folded, and compare each step with eager."""
    manager = PassManager([ConstantFolding, FuseAttention], checked=Checked(calls=[(args, {})]))
    return manager.run(capture(function, *args))


def sdpa_of(result: PassResult) -> Any:
    (node,) = result.graph.nodes_of(SDPA)
    return node


def mask_of(result: PassResult) -> Any:
    node = sdpa_of(result)
    return dict(zip(node.operands, node.inputs, strict=True)).get("attn_mask")


@each_row("mask", {
    "filled": (lambda s, q: s.masked_fill(causal(q), INF)),
    "filled with the least number": (lambda s, q: s.masked_fill(causal(q), LEAST)),
    "filled with a tensor": (lambda s, q: s.masked_fill(causal(q), torch.tensor(INF))),
    "filled with a large number": (lambda s, q: s.masked_fill(causal(q), -1e9)),
    "where": (lambda s, q: torch.where(causal(q), INF, s)),
    "where not": (lambda s, q: torch.where(~causal(q), s, LEAST)),
    "tril": (lambda s, q: s.masked_fill(torch.ones(ROWS, ROWS).tril() == 0, INF)),
    "tril of four axes": (lambda s, q: s.masked_fill(torch.ones(1, 1, ROWS, ROWS).tril() == 0, INF)),
    "added": (lambda s, q: s + torch.full((ROWS, ROWS), INF).triu(1)),
    "added least numbers": (lambda s, q: s + torch.full((ROWS, ROWS), LEAST).triu(1)),
    "two of them": (lambda s, q: (s + torch.full((ROWS, ROWS), INF).triu(1)).masked_fill(causal(q), LEAST)),
})  # fmt: skip
def test_a_constant_that_hides_what_comes_later_is_causal(mask: Any) -> None:
    result = fold(lambda q, k, v: mask(q @ k.mT * 0.3, q).softmax(-1) @ v, *qkv())

    assert sdpa_of(result).attrs.get("is_causal") is True
    assert mask_of(result) is None


@each_row("rows, mask", {
    "fewer queries than keys": (3, lambda s, q: s.masked_fill(torch.ones(3, COLUMNS).tril() == 0, INF)),
    "a window": (5, lambda s, q: s.masked_fill(causal(q) | causal(q).mT, INF)),
    "the key itself hidden": (5, lambda s, q: s.masked_fill(torch.eye(ROWS) > 0, INF)),
})  # fmt: skip
def test_another_constant_is_a_mask_of_bools(rows: Any, mask: Any) -> None:
    result = fold(lambda q, k, v: mask(q @ k.mT, q).softmax(-1) @ v, *qkv(rows))

    assert mask_of(result).type.dtype is torch.bool
    assert "is_causal" not in sdpa_of(result).attrs


def test_a_constant_of_other_numbers_stays_numbers() -> None:
    def function(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        slope = -torch.arange(ROWS, dtype=q.dtype) * 0.25
        return (q @ k.mT + slope).masked_fill(causal(q), INF).softmax(-1) @ v

    result = fold(function, *qkv())

    expected = (-torch.arange(ROWS) * 0.25).expand(ROWS, ROWS).masked_fill(causal(qkv()[0]), INF)
    assert torch.equal(mask_of(result).data, expected)


@each_row("number", [0.5, -INF, INF])
def test_one_number_for_all_scores_is_a_mask(number: Any) -> None:
    args = (*qkv(), torch.tensor(number))

    def from_caller(q: Tensor, k: Tensor, v: Tensor, f: Tensor) -> Tensor:
        return (q @ k.mT + f).softmax(-1) @ v

    def constant(q: Tensor, k: Tensor, v: Tensor, f: Tensor) -> Tensor:
        return (q @ k.mT + torch.full((), number)).softmax(-1) @ v

    for function in (from_caller, constant):
        graph = fold(function, *args).graph
        assert len(list(graph.nodes_of(SDPA))) == 1
        torch.testing.assert_close(execute_ir(graph, args), function(*args), equal_nan=True)


def test_a_constant_that_hides_nothing_is_left_out() -> None:
    result = fold(lambda q, k, v: (q @ k.mT).masked_fill(torch.zeros(5) > 0, INF).softmax(-1) @ v, *qkv())

    assert sdpa_of(result).operands == ("query", "key", "value")


def test_attentions_with_equal_masks_share_a_constant() -> None:
    def function(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        for _ in range(2):
            mask = torch.eye(ROWS) > 0
            q = (q @ k.mT).masked_fill(mask, INF).softmax(-1) @ v
        return q

    first, second = fold(function, *qkv()).graph.nodes_of(SDPA)

    assert first.inputs[-1] is second.inputs[-1]


def test_a_constant_that_masks_a_row_whole_keeps_its_nan() -> None:
    def function(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return (q @ k.mT).masked_fill(torch.ones(ROWS, ROWS).tril(-1) == 0, INF).softmax(-1) @ v

    args = qkv()
    result = fold(function, *args)

    assert sdpa_of(result).attrs.get("is_causal") is None
    found = execute_ir(result.graph, args)
    assert found[:, :, 0].isnan().all()
    torch.testing.assert_close(found, function(*args), equal_nan=True)


UNKNOWN = {
    "bools": (lambda s, b, f: s.masked_fill(b, INF)),
    "bools of a row": (lambda s, b, f: s.masked_fill(b[..., :1], INF)),
    "bools, kept": (lambda s, b, f: torch.where(~b, s, INF)),
    "numbers": (lambda s, b, f: s + f),
    "numbers of rank 1": (lambda s, b, f: s + f[1, 0, 1]),
    "numbers, then bools": (lambda s, b, f: (s + f).masked_fill(b, INF)),
    "bools twice": (lambda s, b, f: s.masked_fill(b, INF).masked_fill(~b, INF)),
    "sums that overflow": (lambda s, b, f: s + f.clamp(min=LEAST) + f.clamp(min=LEAST)),
    "a least number, then numbers": (lambda s, b, f: s.masked_fill(b, LEAST) + f),
}


@each_row("mask", UNKNOWN)
def test_rows_that_a_mask_from_the_caller_hides_whole_are_nan_as_in_eager(mask: Any) -> None:
    hidden = torch.rand(2, 1, ROWS, COLUMNS) > 0.5
    hidden[..., 0] = False
    hidden[1, 0, 1] = True
    numbers = torch.zeros(hidden.shape).masked_fill(hidden, INF)
    args = (*qkv(), hidden, numbers)

    def function(q: Tensor, k: Tensor, v: Tensor, b: Tensor, f: Tensor) -> Tensor:
        return mask(q @ k.mT, b, f).softmax(-1) @ v  # type: ignore[no-any-return]

    result = fold(function, *args)

    assert sdpa_of(result)
    assert function(*args)[1, :, 1].isnan().all()
    torch.testing.assert_close(execute_ir(result.graph, args), function(*args), equal_nan=True)


@each_row("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_nan_stays_in_every_dtype(dtype: Any) -> None:
    hidden = torch.eye(COLUMNS, dtype=torch.bool)
    hidden[2] = True
    args = (*qkv(dtype=dtype), hidden)

    def function(q: Tensor, k: Tensor, v: Tensor, b: Tensor) -> Tensor:
        return (q @ k.mT).masked_fill(b, INF).softmax(-1) @ v

    found = execute_ir(fold(function, *args).graph, args)

    assert torch.equal(found.isnan(), function(*args).isnan())


def test_the_least_number_of_float32_stays_finite_in_bfloat16() -> None:
    args = (*qkv(dtype=torch.bfloat16), torch.ones(COLUMNS, COLUMNS, dtype=torch.bool))

    def function(q: Tensor, k: Tensor, v: Tensor, b: Tensor) -> Tensor:
        return (q @ k.mT).float().masked_fill(b, LEAST).softmax(-1).to(q.dtype) @ v

    found = execute_ir(fold(function, *args).graph, args)

    mean = args[2].float().mean(-2, keepdim=True).expand(found.shape)
    torch.testing.assert_close(found.float(), mean, atol=0.02, rtol=0.02)


def test_a_softmax_of_bfloat16_stays_where_the_option_says_so() -> None:
    args = qkv(dtype=torch.bfloat16)
    manager = PassManager("fuse-attention{bfloat16_softmax=false}")

    rounded = manager.run(capture(lambda q, k, v: (q @ k.mT).softmax(-1) @ v, *args))
    wide = manager.run(
        capture(lambda q, k, v: (q @ k.mT).softmax(-1, dtype=torch.float32).to(q.dtype) @ v, *args)
    )

    assert reasons(rounded) == ["its softmax is of bf16, and bfloat16_softmax=false"]
    assert not list(rounded.graph.nodes_of(SDPA))
    assert sdpa_of(wide)


def test_a_mask_that_layers_share_is_made_once() -> None:
    def function(q: Tensor, k: Tensor, v: Tensor, b: Tensor) -> Tensor:
        for _ in range(3):
            q = (q @ k.mT).masked_fill(b, INF).softmax(-1) @ v
        return q

    result = fold(function, *qkv(), torch.eye(COLUMNS) > 0)

    assert op_types(result.graph).count("all.dim") == 1
    assert op_types(result.graph).count("scaled_dot_product_attention.default") == 3


def test_the_mask_of_a_buffer_is_made_when_weights_are_bound() -> None:
    def function(m: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return (q @ k.mT).masked_fill(m.weight == 0, INF).softmax(-1) @ v

    model = Holding(function, weight=torch.nn.Buffer(torch.ones(ROWS, ROWS).tril()))
    graph = PassManager([FuseAttention, ConstantFolding]).run(extract_ir(model, qkv())).graph

    assert [node.op_type for node in graph.body] == [SDPA]
    assert "attn_mask" in next(graph.nodes_of(SDPA)).operands


def test_a_mask_of_open_sizes_keeps_its_nan() -> None:
    length = torch.export.Dim("length", min=2, max=64)
    shapes = ({2: length},) * 3

    def function(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        hidden = causal(q) | (torch.arange(q.shape[-2]) == 1)[:, None]
        return (q @ k.mT).masked_fill(hidden, INF).softmax(-1) @ v

    graph = extract_ir(Function(function), qkv(), dynamic_shapes=(shapes,))
    fused = PassManager([FuseAttention]).run(graph).graph
    args = tuple(torch.randn(2, 3, 7, 8) for _ in range(3))

    assert len(list(fused.nodes_of(SDPA))) == 1
    torch.testing.assert_close(execute_ir(fused, args), function(*args), equal_nan=True)


def test_scores_without_columns_are_zeros() -> None:
    args = (torch.randn(2, 3, 4, 8), torch.randn(2, 3, 0, 8), torch.randn(2, 3, 0, 8), torch.randn(4, 0))

    result = fold(lambda q, k, v, m: (q @ k.mT + m).softmax(-1) @ v, *args)

    assert (execute_ir(result.graph, args) == 0).all()


def test_a_number_that_is_not_vast_needs_a_constant_that_leaves_something_of_each_row() -> None:
    def function(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return (q @ k.mT).masked_fill(torch.ones(ROWS, ROWS).tril(-1) == 0, -1e9).softmax(-1) @ v

    result = fold(function, *qkv())

    assert not list(result.graph.nodes_of(SDPA))
    assert any("fills in -1e+09: added to scores this is something else" in item for item in reasons(result))


@each_row("number", [LEAST, -1e30])
def test_a_number_of_float32_is_not_filled_into_scores_of_float16_where_it_may_be_a_whole_row(
    number: Any,
) -> None:
    args = (*qkv(dtype=torch.float16), torch.ones(COLUMNS, COLUMNS, dtype=torch.bool))

    def function(q: Tensor, k: Tensor, v: Tensor, b: Tensor) -> Tensor:
        return (q @ k.mT).float().masked_fill(b, number).softmax(-1).to(q.dtype) @ v

    result = fold(function, *args)

    assert not list(result.graph.nodes_of(SDPA))
    assert torch.equal(execute_ir(result.graph, args), function(*args))


@each_row("dtype", [torch.float16, torch.bfloat16])
def test_masks_of_half_precision_are_not_summed_in_it_where_they_were_added_to_wider_scores(
    dtype: Any,
) -> None:
    hidden = torch.zeros(COLUMNS, COLUMNS)
    hidden[2] = torch.finfo(dtype).min
    args = (*qkv(dtype=dtype), hidden.to(dtype))

    def function(q: Tensor, k: Tensor, v: Tensor, f: Tensor) -> Tensor:
        return ((q @ k.mT).float() + f + f).softmax(-1).to(q.dtype) @ v

    result = fold(function, *args)

    assert any("to scores of a wider dtype" in reason for reason in reasons(result))
    assert torch.equal(execute_ir(result.graph, args).isnan(), function(*args).isnan())


def test_weights_that_a_mask_alone_makes_are_left_alone() -> None:
    args = (torch.rand(2, 3, ROWS, COLUMNS) > 0.5, torch.randn(2, 3, COLUMNS, 8))

    def function(b: Tensor, v: Tensor) -> Tensor:
        return torch.where(b, torch.tensor(INF), 0.0).softmax(-1) @ v

    result = fold(function, *args)

    assert any("chooses between two numbers" in reason for reason in reasons(result))
    torch.testing.assert_close(execute_ir(result.graph, args), function(*args), equal_nan=True)


def test_a_shared_mask_is_made_before_each_attention_that_reads_it() -> None:
    def attend(q: Tensor, k: Tensor, v: Tensor, b: Tensor) -> Tensor:
        scores = torch.bmm(q, k.mT).view(2, 3, ROWS, COLUMNS).masked_fill(b, INF)
        return torch.bmm(scores.view(6, ROWS, COLUMNS).softmax(-1), v)

    def function(q: Tensor, k: Tensor, v: Tensor, b: Tensor) -> Tensor:
        first, second = attend(q, k, v, b), attend(q + 1, k, v, b)
        later = second.view(2, 3, ROWS, 8).relu()  # split before the first is
        return first.view(2, 3, ROWS, 8) + later

    args = (*(item.flatten(0, 1) for item in qkv()), torch.eye(COLUMNS) > 0)

    result = fold(function, *args)

    assert len(list(result.graph.nodes_of(SDPA))) == 2
    torch.testing.assert_close(execute_ir(result.graph, args), function(*args))
