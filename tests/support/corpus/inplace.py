"""Writing in place: on intermediates that nobody or somebody else sees, on views, in chains."""

from typing import Any

import torch
from torch import nn
from torch.nn import functional as fn

from tests.support.corpus.case import Table, floats

CASES = Table(floats((4, 4)))


add = CASES.add(floats((4, 4)))

CASES.module(
    "relu_inplace", lambda: nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True), nn.SiLU(inplace=True))
)
CASES.function("activations_in_place", lambda x: fn.hardtanh_(fn.elu_(fn.leaky_relu_(x + 1, 0.1)), -0.5, 2.0))


@CASES.add(holding=lambda: {"body": nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True), nn.Linear(4, 4))})
def residual_in_place(self: Any, x: Any) -> Any:
    y = self.body(x)
    y += x
    return torch.relu_(y)


@add
def write_seen_through_an_earlier_view(x: Any) -> Any:
    y = x + 1
    row = y[0]
    y.mul_(2)
    return row


@add
def write_seen_through_the_base(x: Any) -> Any:
    y = x + 1
    y[1:3].mul_(2)
    y.T[0].add_(5)
    return y


@add
def write_after_a_copy_was_read(x: Any) -> Any:
    y = x + 1
    before = y * 2
    y.zero_()
    return before + y


@add
def write_between_two_readers(x: Any) -> Any:
    y = x.exp()
    first = y.sum()
    y.add_(1)
    second = y.sum()
    y.add_(1)
    return first, second, y.sum()


@add
def write_through_a_view_of_a_view(x: Any) -> Any:
    y = x.clone()
    y.view(2, 8)[1].view(2, 4)[0].fill_(7)
    return y


@add
def write_through_overlapping_views(x: Any) -> Any:
    y = x.clone()
    top, bottom = y[:3], y[1:]
    top.add_(1)
    bottom.mul_(2)
    return top, bottom


@add
def write_through_split_parts(x: Any) -> Any:
    y = x * 1
    a, b = y.split(2)
    a.add_(b)
    left, _ = y.chunk(2, dim=1)
    left.neg_()
    for row in y.unbind(0):
        row.div_(row.abs().max())
    return y


@add
def write_through_diagonal_and_select(x: Any) -> Any:
    y = x.clone()
    y.diagonal().fill_(0)
    y.select(1, 2).add_(1)
    y.narrow(0, 0, 1).sub_(3)
    return y


@add
def write_through_unsqueeze_and_transpose(x: Any) -> Any:
    y = x.clone()
    y.unsqueeze(0).transpose(1, 2)[0, 1].mul_(3)
    return y, y.T


@add
def write_through_as_strided(x: Any) -> Any:
    y = x.clone()
    y.as_strided((4,), (5,)).fill_(-1)
    return y


@add
def write_through_real_and_imaginary_parts(x: Any) -> Any:
    z = torch.complex(x, x * 2)
    z.real.add_(1)
    torch.view_as_real(z)[..., 1].mul_(2)
    return z
