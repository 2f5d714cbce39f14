"""Operators of other namespaces: functional, writing, with lists and None."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tests.support.corpus.case import Table, floats
from tests.support.corpus.operator_library import (
    accumulate,
    halves,
    increment,
    increment_all,
    min_and_max,
    multiply_some,
    scaled_tanh,
    weighted_sum,
)

CASES = Table(floats((3, 4)))
function = CASES.function
OPS = torch.ops.corpus_schema


add = CASES.add(floats((3, 4)))

function(
    "custom_op", lambda x: scaled_tanh(x, shift=3) + scaled_tanh(x, 0.5), op="corpus.scaled_tanh.default"
)
function("custom_op_with_many_outputs", lambda x: min_and_max(x, 1), op="corpus.min_and_max.default")
function("custom_op_partly_used", lambda x: min_and_max(x, 0)[2] + 1)
function("custom_op_with_list_and_none", lambda x: weighted_sum([x, x * 2], [0.5, 2.0]))
function(
    "custom_op_with_list_and_bias", lambda x: weighted_sum([x], [0.5], x[0]), op="corpus.weighted_sum.default"
)
function("custom_op_returning_list", halves, op="corpus.halves.default")
function(
    "custom_op_of_optional_list", lambda x: OPS.pick([None, x, None], 1), op="corpus_schema.pick.default"
)
function("custom_op_keyword_tensor", lambda x: OPS.pick([x, None], 1, otherwise=x * 2, mode="mean"))
function("custom_op_other_overload", lambda x: OPS.pick.scaled(x, 3) + OPS.pick.scaled(x, 0.5),
    op="corpus_schema.pick.scaled")  # fmt: skip
function("custom_op_in_no_grad_region", lambda x: torch.no_grad()(scaled_tanh)(x) + x)
function("prims_namespace", lambda x: torch.ops.prims.mul.default(x, x) + torch.ops.aten.add(x, 1),
    op="prims.mul.default")  # fmt: skip


@CASES.add(op="corpus.increment.default")
def custom_op_writing_intermediate(x: Any) -> Any:
    y = x * 3
    increment(y, 2.0)
    return y * 2


@add
def custom_op_writing_what_a_view_shows(x: Any) -> Any:
    y = x * 3
    row = y[0]
    increment(y, 2.0)
    return row


@add
def custom_op_writing_view(x: Any) -> Any:
    y = x * 3
    increment(y[1:], 2.0)
    return y


@add
def custom_op_writing_overlapping_views(x: Any) -> Any:
    y = x * 3
    increment(y[1:], 1.0)
    increment(y[:-1].T, 2.0)
    return y


@add
def custom_op_writing_input(x: Any) -> Any:
    increment(x, 2.0)
    return x * 2


@add
def custom_op_writing_list(x: Any) -> Any:
    a, b = x + 1, x + 2
    increment_all([a, b])
    return a * b


@add
def custom_op_writing_in_no_grad_region(x: Any) -> Any:
    y = x * 3
    with torch.no_grad():
        increment(y[0], 2.0)
    return y


@add
def custom_op_writing_only_the_second(x: Any) -> Any:
    y = x + 1
    return multiply_some(x, None, y), y


@add
def custom_op_writing_only_the_first(x: Any) -> Any:
    y = torch.ones(4, 4)
    return multiply_some(x[0], y[:, 1], None), y


@CASES.add(op="corpus_schema.shift_.default")
def custom_op_whose_namesake_does_something_else(x: Any) -> Any:
    y = x * 3
    OPS.shift_(y, 2.0)
    OPS.shift_(y[1:], 0.5)
    return y, OPS.shift(y, 2.0)


@add
def list_op_writing_and_returning_nothing(x: Any) -> Any:
    y = x + 1
    torch._foreach_mul_([y, x], 2.0)
    return y


@CASES.add(floats((4,)), holding=lambda: {"total": torch.zeros(4), "count": torch.zeros(())})
def custom_op_writing_buffers(self: Any, x: Tensor) -> Tensor:
    return accumulate(x, self.total, self.count) * 2


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:
        return x * x

    @staticmethod
    def backward(ctx: object, gradient: Tensor) -> Tensor:
        return gradient


function("autograd_function", lambda x: Square.apply(x) + 1)
function("checkpointed",
    lambda x: torch.utils.checkpoint.checkpoint(lambda y: y.sin().exp(), x, use_reentrant=False))  # fmt: skip
