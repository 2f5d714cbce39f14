"""Attentions that are written out become one op, and what only looks like one stays."""

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as fn

from npu_ir import TensorType, execute_ir, extract_ir
from npu_passes import Checked, PassManager, PassResult
from npu_passes.library.fusion.fuse_attention import FuseAttention
from tests.support.passes.pattern_cases import capture, op_types, reasons
from tests.support.rows import each_row

SDPA = "aten.scaled_dot_product_attention.default"
INF = -math.inf
LEAST = torch.finfo(torch.float32).min
Parts = Callable[..., Tensor]


def qkv(
    *, rank: int = 4, dtype: torch.dtype = torch.float32, length: int = 5
) -> tuple[Tensor, Tensor, Tensor]:
    lead = (2, 3)[4 - rank :]
    sizes = (7, 8), (length, 8), (length, 8)
    return tuple(torch.randn(*lead, *size).to(dtype) for size in sizes)  # type: ignore[return-value]


def attention(
    q: Tensor, k: Tensor, v: Tensor, *, mask: Any = lambda scores: scores, weights: Any = lambda item: item
) -> Tensor:
    scores = mask(q @ k.transpose(-1, -2) * 8**-0.5)
    return weights(scores.softmax(-1)) @ v  # type: ignore[no-any-return]


def fused(function: Parts, *args: Tensor) -> PassResult:
    return PassManager([FuseAttention], checked=Checked(calls=[(args, {})])).run(capture(function, *args))


def sdpa_of(result: PassResult) -> Any:
    (node,) = result.graph.nodes_of(SDPA)
    assert "softmax.int" not in op_types(result.graph)
    return node


FORMS = {
    "plain": attention,
    "mT": (lambda q, k, v: (q @ k.mT * 8**-0.5).softmax(-1) @ v),
    "permute": (lambda q, k, v: (q @ k.permute(0, 1, 3, 2) * 8**-0.5).softmax(-1) @ v),
    "divided": (lambda q, k, v: (q @ k.transpose(3, 2) / 8**0.5).softmax(-1) @ v),
    "scale on the query": (lambda q, k, v: ((q / 8**0.5) @ k.mT).softmax(-1) @ v),
    "scale on the key": (lambda q, k, v: (q @ (k * 8**-0.5).mT).softmax(-1) @ v),
    "scale on the turned key": (lambda q, k, v: (q @ (k.mT * 8**-0.5)).softmax(-1) @ v),
    "scale on both": (lambda q, k, v: ((q * 8**-0.25) @ (k * 8**-0.25).mT).softmax(-1) @ v),
    "no scale": (lambda q, k, v: (q @ k.mT).softmax(-1) @ v),
    "negative scale": (lambda q, k, v: (q @ k.mT * -0.25).softmax(-1) @ v),
    "two scales": (lambda q, k, v: (q @ k.mT * 0.5 * 0.5).softmax(-1) @ v),
    "positive axis": (lambda q, k, v: (q @ k.mT * 8**-0.5).softmax(3) @ v),
    "constant tensor": (lambda q, k, v: (q @ k.mT / torch.tensor(2.0)).softmax(-1) @ v),
    "full tensor": (lambda q, k, v: (q @ k.mT / torch.full([], 2.0)).softmax(-1) @ v),
    "dropout off": (lambda q, k, v: fn.dropout(((q @ k.mT) * 0.3).softmax(-1), 0.5, False) @ v),
    "dropout of nothing": (lambda q, k, v: fn.dropout(((q @ k.mT) * 0.3).softmax(-1), 0.0, True) @ v),
    "softmax in float64": (lambda q, k, v: ((q @ k.mT) * 0.3).to(torch.float64).softmax(-1).to(q.dtype) @ v),
}


def test_every_way_to_write_an_attention_becomes_one_op(subtests: pytest.Subtests) -> None:
    some = ("plain", "scale on both", "full tensor", "softmax in float64")
    others = itertools.product([torch.float64, torch.bfloat16, torch.float16], some)
    for dtype, case in [*((torch.float32, case) for case in FORMS), *others]:
        with subtests.test(dtype=dtype, case=case):
            node = sdpa_of(fused(FORMS[case], *qkv(dtype=dtype)))

            assert node.outputs[0].type.dtype == dtype


@each_row("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_softmax_in_float32_of_half_precision_goes_into_the_op(dtype: Any) -> None:
    def function(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return (q @ k.mT * 0.3).softmax(-1, dtype=torch.float32).to(q.dtype) @ v

    node = sdpa_of(fused(function, *qkv(dtype=dtype)))

    assert node.outputs[0].type.dtype == dtype


def test_the_scale_is_the_product_of_all_scales() -> None:
    result = fused(lambda q, k, v: ((q * 2) @ (k / 4).mT * 3).softmax(-1) @ v, *qkv())

    assert sdpa_of(result).attrs["scale"] == pytest.approx(1.5)


MASKS = {
    "added": (lambda s, b, f: s + f),
    "added the other way round": (lambda s, b, f: f + s),
    "added of rank 2": (lambda s, b, f: s + f[0, 0]),
    "added of rank 1": (lambda s, b, f: s + f[0, 0, 0]),
    "two added": (lambda s, b, f: s + f[:, :, :1] + f),
    "a product added": (lambda s, b, f: s + f.exp() @ torch.ones_like(f).mT @ f),
    "filled with -inf": (lambda s, b, f: s.masked_fill(b, INF)),
    "filled with a number": (lambda s, b, f: s.masked_fill(b, -1e38)),
    "where -inf": (lambda s, b, f: torch.where(b, s, INF)),
    "where -inf turned": (lambda s, b, f: torch.where(b, INF, s)),
    "where a number": (lambda s, b, f: torch.where(b, s, -1e38)),
    "where a full tensor": (lambda s, b, f: torch.where(b, s, torch.full([], INF))),
    "where full turned": (lambda s, b, f: torch.where(b, torch.full([], -1e38, dtype=s.dtype), s)),
    "added, then filled": (lambda s, b, f: (s + f).masked_fill(b, INF)),
    "filled, then added": (lambda s, b, f: s.masked_fill(b, INF) + f),
    "filled twice": (lambda s, b, f: s.masked_fill(b, INF).masked_fill(b[:, :, :1], INF)),
    "where after added": (lambda s, b, f: torch.where(b, s + f, INF)),
}


def half_masked(rows: int = 7, columns: int = 5) -> Tensor:
    """Return bools that are False in the first column, True in the second, and so in every row both."""
    mask = torch.rand(2, 1, rows, columns) > 0.5
    mask[..., 0], mask[..., 1] = False, True
    return mask


@each_row("function", MASKS)
def test_every_mask_becomes_one(function: Any) -> None:
    args = (*qkv(), half_masked(), torch.randn(2, 1, 7, 5))

    result = fused(lambda q, k, v, b, f: attention(q, k, v, mask=lambda s: function(s, b, f)), *args)

    assert "attn_mask" in sdpa_of(result).operands


def test_a_row_that_is_masked_as_a_whole_is_the_mean_where_the_number_is_finite() -> None:
    def function(q: Tensor, k: Tensor, v: Tensor, b: Tensor) -> Tensor:
        return attention(q, k, v, mask=lambda s: s.masked_fill(b, LEAST))

    args = (*qkv(), torch.ones(7, 5, dtype=torch.bool))
    result = fused(function, *args)

    assert len(list(result.graph.nodes_of(SDPA))) == 1
    mean = args[2].mean(-2, keepdim=True).expand(function(*args).shape)
    torch.testing.assert_close(execute_ir(result.graph, args), mean)


@each_row("function", {
    "bmm": (lambda q, k, v, f: (torch.bmm(q, k.mT) / 3).softmax(-1).bmm(v)),
    "matmul": (lambda q, k, v, f: (q @ k.mT / 3 + f).softmax(-1) @ v),
    "baddbmm": (lambda q, k, v, f: torch.baddbmm(f, q, k.mT, beta=1, alpha=0.3).softmax(-1).bmm(v)),
    "baddbmm-beta-0": (lambda q, k, v, f: torch.baddbmm(f, q, k.mT, beta=0).softmax(-1).bmm(v)),
})  # fmt: skip
def test_attentions_of_three_axes(function: Any) -> None:
    args = (*qkv(rank=3), torch.randn(3, 7, 5))

    result = fused(function, *args)

    assert len(list(result.graph.nodes_of(SDPA))) == 1
    torch.testing.assert_close(execute_ir(result.graph, args), function(*args))


def test_a_key_that_is_never_turned_is_turned() -> None:
    q, k, v = qkv()

    node = sdpa_of(fused(lambda q, k, v: (q @ k).softmax(-1) @ v, q, k.mT.contiguous(), v))

    assert node.inputs[1].producer.op_type == "aten.transpose.int"


@each_row("turn, shape", {
    "transpose": (lambda k: k.transpose(1, 2), (2, 8, 3, 5)),
    "permute": (lambda k: k.permute(0, 2, 3, 1), (2, 5, 3, 8)),
})  # fmt: skip
def test_a_key_that_is_turned_in_other_axes_is_turned_once_more(turn: Any, shape: Any) -> None:
    q, _, v = qkv()

    node = sdpa_of(fused(lambda q, k, v: (q @ turn(k)).softmax(-1) @ v, q, torch.randn(shape), v))

    assert dict(node.inputs[1].producer.attrs) == {"dim0": -2, "dim1": -1}


def test_a_scale_that_others_read_stays_outside() -> None:
    def function(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        scaled = q * 0.5
        return (scaled @ k.mT).softmax(-1) @ v, scaled

    node = sdpa_of(fused(function, *qkv()))

    assert (node.inputs[0].name, node.attrs["scale"]) == ("mul", 1.0)


class Heads(nn.Module):
    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, v = (item.view(*item.shape[:2], 3, 8).transpose(1, 2) for item in (q, k, v))
        return attention(q, k, v).transpose(1, 2).contiguous().view(q.shape[0], -1, 24)


def test_heads_are_put_together_without_a_copy() -> None:
    args = (torch.randn(2, 7, 24), torch.randn(2, 5, 24), torch.randn(2, 5, 24))
    graph = PassManager([FuseAttention]).run(extract_ir(Heads(), args)).graph

    turn = next(graph.nodes_of(SDPA)).outputs[0].users[0]
    assert turn.op_type == "aten.transpose.int"
    assert turn.outputs[0].type == TensorType((2, 7, 3, 8), torch.float32)
    assert not list(graph.nodes_of("aten.clone.default"))


def test_what_reads_the_result_as_it_lies_in_memory_gets_it_so() -> None:
    def function(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, v = (item.view(2, -1, 3, 8).transpose(1, 2) for item in (q, k, v))
        return attention(q, k, v).view(6, 7, 8)

    args = (torch.randn(2, 7, 24), torch.randn(2, 5, 24), torch.randn(2, 5, 24))

    assert sdpa_of(fused(function, *args)).outputs[0].type.strides is not None


def test_attentions_with_open_sizes_are_fused() -> None:
    batch, length = torch.export.Dim("batch", min=1, max=64), torch.export.Dim("length", min=2, max=512)
    shapes = {0: batch, 1: length}
    args = tuple(torch.randn(2, 7, 24) for _ in range(3))
    graph = extract_ir(Heads(), args, dynamic_shapes=(shapes, shapes, shapes))

    result = PassManager([FuseAttention], checked=Checked(calls=[(args, {})])).run(graph)

    (node,) = result.graph.nodes_of(SDPA)
    assert str(node.outputs[0].type) == "f32[batch, 3, length, 8]@[24*length, 8, 24, 1]"


class Window(torch.nn.Module):
    """Attends from rows between two places that are numbers of a tensor."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, places: Tensor) -> Tensor:
        first, last = places[0].item(), places[1].item()
        return (q.index_select(2, torch.arange(first, last)) @ k.mT).softmax(-1) @ v


def test_rows_that_data_count_are_fused() -> None:
    args = (*qkv(), torch.tensor([1, 4]))

    result = PassManager([FuseAttention], checked=Checked(calls=[(args, {})])).run(extract_ir(Window(), args))

    assert len(list(result.graph.nodes_of(SDPA))) == 1


class TimeFirst(torch.nn.Module):
    """Attention over [rows, batch, 3 * size], as recurrent layers have it."""

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (item.transpose(0, 1) for item in x.chunk(3, -1))
        return attention(q, k, v)


BATCH, SIZE = torch.export.Dim("batch", min=1), torch.export.Dim("size", min=1)


def test_an_open_batch_that_is_the_second_axis_is_fused() -> None:
    x = torch.randn(5, 3, 24)
    graph = extract_ir(TimeFirst(), (x,), dynamic_shapes=({1: BATCH},))

    result = PassManager([FuseAttention], checked=Checked(calls=[((x,), {})])).run(graph)

    assert len(list(result.graph.nodes_of(SDPA))) == 1
    torch.testing.assert_close(execute_ir(result.graph, (x[:, :1],)), TimeFirst()(x[:, :1]))


def test_sizes_of_which_pytorch_does_not_tell_the_result_are_refused() -> None:
    graph = extract_ir(TimeFirst(), (torch.randn(5, 3, 24),), dynamic_shapes=({1: BATCH, 2: 3 * SIZE},))

    result = PassManager([FuseAttention]).run(graph)

    assert not list(result.graph.nodes_of(SDPA))
    (found,) = reasons(result)
    assert "scaled_dot_product_attention.default returns on" in found
    assert "cannot be inferred for all sizes: only where Ne(" in found


def cast(x: Tensor) -> Tensor:
    return x.to(torch.float32)


F16, F64 = torch.float16, torch.float64
SAME = torch.randn(2, 1, 7, 5)
NOT_A_MASK = "'add' adds something that is not a mask"


@each_row("function, reason", [
    (lambda q, k, v: cast((q @ k.mT).softmax(-1).to(F16)) @ v, "'to' rounds to f16"),
    (lambda q, k, v: cast((q @ k.mT).softmax(-1, dtype=F16)) @ v, "'softmax' rounds to f16"),
    (lambda q, k, v: cast(q.double() @ k.double().mT).softmax(-1) @ v, "rounds to f32"),
    (lambda q, k, v: cast((q.to(F64) @ k.to(F64).mT).softmax(-1)) @ v,
        "its parts are not floats of one dtype"),
    (lambda q, k, v: cast((q @ k.mT).to(torch.int64)).softmax(-1) @ v,
        "'to' does more than cast to another dtype of floats"),
    (lambda q, k, v: (q @ k.mT * math.inf).softmax(-1) @ v,
        "'mul', aten.mul.Tensor, stands between product and softmax"),
    (lambda q, k, v: (q @ k.mT * q[..., :1]).softmax(-1) @ v,
        "'mul', aten.mul.Tensor, stands between product and softmax"),
    (lambda q, k, v, m: ((q @ k.mT).tanh() * 5 + m).softmax(-1) @ v,
        "'tanh', aten.tanh.default, stands between product and softmax"),
    (lambda q, k, v: q[..., :5].softmax(-1) @ v, "stands between product and softmax"),
    (lambda m, q, k, v: m.softmax(-1) @ v[:, :1], "its scores %m are not a product"),
    (lambda q, k, v: (lambda w: (w @ v, w))((q @ k.mT).softmax(-1)), "%softmax is read elsewhere"),
    (lambda q, k, v: (lambda s: (s.softmax(-1) @ v, s))(q @ k.mT), "%matmul is read elsewhere"),
    (lambda q, k, v: fn.dropout((q @ k.mT).softmax(-1), 0.5, True) @ v, "its dropout 'dropout' is on"),
    (lambda q, k, v: (q @ k.mT).softmax(-2) @ v, "its softmax is over axis -2, not over the last one"),
    (lambda q, k, v, m: ((q @ k.mT + m) * 2).softmax(-1) @ v, "it scales its mask ('add')"),
    (lambda q, k, v, m: torch.add(q @ k.mT, m, alpha=2).softmax(-1) @ v, NOT_A_MASK),
    (lambda q, k, v: (q @ k.mT + 1).softmax(-1) @ v, NOT_A_MASK),
    (lambda q, k, v, m: (q @ k.mT + (m > 0)).softmax(-1) @ v,
        "its mask %gt, bool[2, 1, 7, 5], is not of f32"),
    (lambda q, k, v, m: (q[:, :, :1] @ k.mT + m).softmax(-1) @ v,
        "its mask %m, f32[2, 1, 7, 5], does not fit scores of f32[2, 3, 1, 5]"),
    (lambda q, k, v, m: (q @ k.mT + torch.stack([m, m])).softmax(-1) @ torch.stack([v, v])[0],
        "its mask %stack, f32[2, 2, 1, 7, 5], does not fit scores of f32[2, 3, 7, 5]"),
    (lambda q, k, v, m: (q @ k.mT).masked_fill(m > 0, -1e4).softmax(-1) @ v,
        "'masked_fill' fills in -10000: this may leave weights that are not 0 where it masks"),
    (lambda q, k, v, m: (q @ k.mT).masked_fill(m > 0, -1e9).softmax(-1) @ v,
        "'masked_fill' fills in -1e+09: added to scores this is something else in a row that is masked as a"),
    (lambda q, k, v, m: (q @ k.mT).masked_fill(m > 0, math.nan).softmax(-1) @ v, "fills in nan"),
    (lambda q, k, v, m: torch.where(m > 0, q @ k.mT, m).softmax(-1) @ v,
        "'where' fills in something that is not a number"),
    (lambda q, k, v: (q @ k[:1].mT).softmax(-1) @ v, "its products broadcast: query f32[2, 3, 7, 8]"),
    (lambda q, k, v: (q[0, 0] @ k[0, 0].mT).softmax(-1) @ v[0, 0], "it is not of 3 or 4 axes"),
])  # fmt: skip
def test_what_is_no_such_attention_stays_with_a_reason(function: Any, reason: Any) -> None:
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    args = {**dict(zip("qkv", qkv(), strict=True)), "m": SAME}
    graph = capture(function, *(args[name] for name in names))
    for value, name in zip(graph.inputs, names, strict=True):
        graph.rename(value, name)

    result = PassManager([FuseAttention]).run(graph)

    assert str(result.graph) == str(graph)
    (found,) = reasons(result)
    assert reason in found


def test_products_that_look_like_no_attention_are_not_spoken_of() -> None:
    result = fused(lambda q, k, v: (q @ k.mT) @ v, *qkv())

    assert not reasons(result)
    assert op_types(result.graph).count("matmul.default") == 2
