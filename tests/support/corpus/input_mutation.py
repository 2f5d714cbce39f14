"""Models that change their inputs."""

from typing import Any

import torch
from torch import randn

from tests.support.corpus.case import Call, Table, call, floats

CASES = Table(floats((3, 3), (3, 3)))
add = CASES.add(lambda: call(randn(3, 3), randn(3, 3)))


@add
def input_changed(x: Any, y: Any) -> Any:
    x.add_(1)
    return x + y


@add
def input_changed_and_nothing_returned(x: Any, y: Any) -> Any:
    y.copy_(x)


@add
def input_changed_and_returned(x: Any, y: Any) -> Any:
    return x.mul_(2), x[0], y


@add
def input_changed_through_a_view(x: Any, y: Any) -> Any:
    x[0].copy_(y[1])
    x.T[1:].zero_()
    return x.sum()


@add
def inputs_changed_by_each_other(x: Any, y: Any) -> Any:
    x.add_(y)
    y.mul_(x)
    return y - x


@add
def input_changed_after_it_was_read(x: Any, y: Any) -> Any:
    before = x * y
    x.zero_()
    return before, x + y


@add
def input_written_with_what_it_holds(x: Any, y: Any) -> Any:
    x.add_(0)
    return x * y


@add
def input_changed_under_no_grad(x: Any, y: Any) -> Any:
    with torch.no_grad():
        x[1] += y[0]
    return x


@add
def input_changed_through_an_alias(x: Any, y: Any) -> Any:
    x.reshape(9).add_(y.view(-1))
    x.detach().relu_()
    return x


CASES.function("inputs_in_containers_changed", lambda tree, *, out: out.add_(tree["a"][0].mul_(2)),
    lambda: call({"a": [randn(2)]}, out=randn(2)))  # fmt: skip
CASES.function("list_of_inputs_changed", lambda xs: [x.add_(i) for i, x in enumerate(xs)],
    lambda: call([randn(2), randn(2)]))  # fmt: skip


def twice() -> Call:
    x = randn(3)
    return call(x, x)


CASES.function("same_input_changed_twice", lambda x, y: (x.add_(1), y.mul_(2), x - 3 * y)[2], twice)
CASES.function("same_input_seen_through_the_other", lambda x, y: (y[0].fill_(9), x.clone())[1], twice)
