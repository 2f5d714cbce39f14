"""Operators of other namespaces, made with torch.library: functional, writing, with lists and None."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn, randn

from tests.npu_ir.corpus.case import Call, Table, call

CASES = Table()
function = CASES.function


def one() -> Call:
    return call(randn(3, 4))


@torch.library.custom_op("corpus::scaled_tanh", mutates_args=())
def scaled_tanh(x: Tensor, scale: float = 2.0, *, shift: int = 0) -> Tensor:
    return torch.tanh(x) * scale + shift


@scaled_tanh.register_fake
def _(x: Tensor, scale: float = 2.0, *, shift: int = 0) -> Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("corpus::min_and_max", mutates_args=())
def min_and_max(x: Tensor, dim: int) -> tuple[Tensor, Tensor, Tensor]:
    return x.amin(dim), x.amax(dim), x.argmax(dim)


@min_and_max.register_fake
def _(x: Tensor, dim: int) -> tuple[Tensor, Tensor, Tensor]:
    reduced = x.amin(dim)
    return reduced, torch.empty_like(reduced), torch.empty_like(reduced, dtype=torch.int64)


@torch.library.custom_op("corpus::weighted_sum", mutates_args=())
def weighted_sum(xs: Sequence[Tensor], weights: Sequence[float], bias: Tensor | None = None) -> Tensor:
    total = sum((x * weight for x, weight in zip(xs, weights, strict=True)), torch.zeros_like(xs[0]))
    return total if bias is None else total + bias


@weighted_sum.register_fake
def _(xs: Sequence[Tensor], weights: Sequence[float], bias: Tensor | None = None) -> Tensor:
    return torch.empty_like(xs[0])


@torch.library.custom_op("corpus::halves", mutates_args=())
def halves(x: Tensor) -> list[Tensor]:
    return [half.clone() for half in x.chunk(2, -1)]


@halves.register_fake
def _(x: Tensor) -> list[Tensor]:
    return [torch.empty_like(half) for half in x.chunk(2, -1)]


@torch.library.custom_op("corpus::increment", mutates_args=("x",))
def increment(x: Tensor, amount: float) -> None:
    x.add_(amount)


@torch.library.custom_op("corpus::accumulate", mutates_args=("total", "count"))
def accumulate(x: Tensor, total: Tensor, count: Tensor) -> Tensor:
    total.add_(x)
    count.add_(1)
    return total / count


@accumulate.register_fake
def _(x: Tensor, total: Tensor, count: Tensor) -> Tensor:
    return torch.empty_like(total)


@torch.library.custom_op("corpus::increment_all", mutates_args=("xs",))
def increment_all(xs: Sequence[Tensor]) -> None:
    for x in xs:
        x.add_(1)


@torch.library.custom_op("corpus::multiply_some", mutates_args=("a", "b"))
def multiply_some(x: Tensor, a: Tensor | None, b: Tensor | None = None) -> Tensor:
    for written in (a, b):
        if written is not None:
            written.mul_(x)
    return x * 2


@multiply_some.register_fake
def _(x: Tensor, a: Tensor | None, b: Tensor | None = None) -> Tensor:
    return torch.empty_like(x)


LIBRARY = torch.library.Library("corpus_schema", "DEF")
LIBRARY.define("pick(Tensor?[] xs, int index, *, Tensor? otherwise=None, str mode='sum') -> Tensor")
LIBRARY.define("pick.scaled(Tensor x, Scalar scale) -> Tensor")


def pick(xs: Sequence[Tensor | None], index: int, *, otherwise: Tensor | None = None, mode: str = "sum") -> Tensor:
    chosen = xs[index] if xs[index] is not None else otherwise
    assert chosen is not None
    return chosen.sum(0) if mode == "sum" else chosen.mean(0)


LIBRARY.impl("pick", pick, "CompositeExplicitAutograd")
LIBRARY.impl("pick.scaled", lambda x, scale: x * scale, "CompositeExplicitAutograd")
OPS = torch.ops.corpus_schema

function("custom_op", lambda x: scaled_tanh(x, shift=3) + scaled_tanh(x, 0.5), one, op="corpus.scaled_tanh.default")
function("custom_op_with_many_outputs", lambda x: min_and_max(x, 1), one, op="corpus.min_and_max.default")
function("custom_op_partly_used", lambda x: min_and_max(x, 0)[2] + 1, one)
function("custom_op_with_list_and_none", lambda x: weighted_sum([x, x * 2], [0.5, 2.0]), one)
function("custom_op_with_list_and_bias", lambda x: weighted_sum([x], [0.5], x[0]), one, op="corpus.weighted_sum.default")
function("custom_op_returning_list", lambda x: halves(x), one, op="corpus.halves.default")
function("custom_op_writing_intermediate", lambda x: (lambda y: (increment(y, 2.0), y * 2)[1])(x * 3), one)
function("custom_op_writing_seen_by_view", lambda x: (lambda y: (lambda v: (increment(y, 2.0), v)[1])(y[0]))(x * 3), one)
function("custom_op_writing_view", lambda x: (lambda y: (increment(y[1:], 2.0), y)[1])(x * 3), one)
function("custom_op_writing_input", lambda x: (increment(x, 2.0), x * 2)[1], one)
function("custom_op_writing_list", lambda x: (lambda a, b: (increment_all([a, b]), a * b)[1])(x + 1, x + 2), one)
function("custom_op_writing_in_no_grad_region", lambda x: (lambda y: (torch.no_grad()(increment)(y[0], 2.0), y)[1])(x * 3), one)
function("custom_op_writing_overlapping_views", lambda x: (lambda y: (increment(y[1:], 1.0), increment(y[:-1].T, 2.0), y)[2])(x * 3), one)
function("custom_op_writing_only_the_second", lambda x: (lambda y: (multiply_some(x, None, y), y))(x + 1), one)
function("custom_op_writing_only_the_first", lambda x: (lambda y: (multiply_some(x[0], y[:, 1], None), y))(torch.ones(4, 4)), one)
function("list_op_writing_and_returning_nothing", lambda x: (lambda y: (torch._foreach_mul_([y, x], 2.0), y)[1])(x + 1), one)
function("custom_op_of_optional_list", lambda x: OPS.pick([None, x, None], 1), one, op="corpus_schema.pick.default")
function("custom_op_keyword_tensor", lambda x: OPS.pick([x, None], 1, otherwise=x * 2, mode="mean"), one)
function("custom_op_other_overload", lambda x: OPS.pick.scaled(x, 3) + OPS.pick.scaled(x, 0.5), one, op="corpus_schema.pick.scaled")
function("custom_op_in_no_grad_region", lambda x: torch.no_grad()(scaled_tanh)(x) + x, one)
function("prims_namespace", lambda x: torch.ops.prims.mul.default(x, x) + torch.ops.aten.add(x, 1), one, op="prims.mul.default")


class RunningMean(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(4))
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        return accumulate(x, self.total, self.count) * 2


CASES.module("custom_op_writing_buffers", RunningMean, lambda: call(randn(4)))


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:
        return x * x

    @staticmethod
    def backward(ctx: object, gradient: Tensor) -> Tensor:
        return gradient


function("autograd_function", lambda x: Square.apply(x) + 1, one)
function("checkpointed", lambda x: torch.utils.checkpoint.checkpoint(lambda y: y.sin().exp(), x, use_reentrant=False), one)
