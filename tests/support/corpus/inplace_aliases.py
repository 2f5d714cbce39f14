"""Writing in place into what an operator returned that may or may not be its argument."""

from typing import Any

import torch
from torch import nn, randn
from torch.nn import functional as fn

from tests.support.corpus.case import Table, call, floats

CASES = Table(floats((4, 4)))
add = CASES.add(lambda: call(randn(4, 4)))


@add
def write_after_einsum_and_dropout(x: Any) -> Any:
    y = torch.einsum("ij->ji", x.exp())
    y.add_(1)
    z = torch.einsum("ij,jk->ik", x, x)
    z += y
    return fn.dropout(z, 0.5, training=False).mul_(2)


@add
def write_after_idle_dropout(x: Any) -> Any:
    y = x * 1
    fn.dropout(y, 0.5, training=False).add_(1)
    fn.dropout1d(y, 0.0).mul_(2)
    return y


@add
def write_into_input_after_idle_dropout(x: Any) -> Any:
    nn.Dropout(0.5).eval()(x)[0].add_(1)
    return x * 2


@add
def write_after_ops_that_may_alias(x: Any) -> Any:
    y = x + 1
    a = y.reshape(2, 8).add_(1)
    b = y.contiguous().mul_(2)
    c = y.to(torch.float32).sub_(3)
    d = y.flatten().clamp_(min=0)
    return a, b, c, d, y


@add
def write_after_ops_that_copy(x: Any) -> Any:
    y = x + 1
    y.T.reshape(2, 8).add_(1)
    y.T.contiguous().mul_(2)
    y.to(torch.float64).sub_(3)
    y.T.flatten().zero_()
    return y


@add
def write_under_no_grad(x: Any) -> Any:
    y = x * 2
    with torch.no_grad():
        y.add_(1)
        y[0].mul_(3)
    return y


@add
def write_through_detach_and_data(x: Any) -> Any:
    y = x * 2
    y.detach().add_(1)
    y.data.mul_(3)
    return y
