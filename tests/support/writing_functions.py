"""Functions of one tensor that write in place, into nothing that their caller sees."""

import torch
from torch import Tensor
from torch.nn import functional as F


def relu(x: Tensor) -> Tensor:
    return (x * 2).relu_()


def write_through_views(x: Tensor) -> Tensor:
    y = x * 1
    y[0].zero_()
    y.t()[1:] = 5
    return y


def zero_by_mask(x: Tensor) -> Tensor:
    y = x * 1
    y[y > 0] = 0
    return y


def change_a_constant(x: Tensor) -> Tensor:
    y = torch.tensor([1.0, 2.0, 3.0])
    return x + y.add_(1)


def write_beside_a_constant(x: Tensor) -> Tensor:
    y = x + torch.tensor([1.0, 2.0, 3.0])
    y[0] += torch.tensor(2.0)
    return y


def write_through_dropout(x: Tensor) -> Tensor:
    y = x * 1
    F.dropout(y, 0.5, training=False).add_(1)
    return y


def write_through_einsum(x: Tensor) -> Tensor:
    y = x * 1
    torch.einsum("ij->ji", y).add_(1)
    return y


def polygamma(x: Tensor) -> Tensor:
    return (x.abs() + 1).polygamma_(2)


def write_without_gradients(x: Tensor) -> Tensor:
    y = x * 1
    with torch.no_grad():
        y.t()[0].add_(1)
    return y


def nested(x: Tensor) -> Tensor:
    y = x + torch.tensor(1.0)
    y[0].mul_(2)
    return torch.cond(y.sum() > -100, write_beside_a_constant, torch.clone, (y,))


BODIES = [
    relu,
    write_through_views,
    zero_by_mask,
    change_a_constant,
    write_beside_a_constant,
    write_through_dropout,
    write_through_einsum,
    polygamma,
    write_without_gradients,
    nested,
]
