"""Writing in place with the operators made for it: assignments, index and mask writes, chains."""

from typing import Any

import torch
from torch import randn, tensor

from tests.support.corpus.case import Table, call, floats

CASES = Table(floats((4, 4)))
add = CASES.add(lambda: call(randn(4, 4)))


@add
def slice_assignment(x: Any) -> Any:
    y = x.clone()
    y[0] = 1
    y[:, 1] = y[:, 2]
    y[2:, 2:] = x[:2, :2]
    y[..., -1] += 3
    return y


@add
def assignment_by_mask_and_index(x: Any) -> Any:
    y = x.clone()
    y[y > 0.5] = 0.5
    y[tensor([0, 2])] = x[1]
    y[[1, 3], [0, 0]] = tensor([8.0, 9.0])
    y[None, 0, ..., 1] = -1
    return y


@add
def index_writing_ops(x: Any) -> Any:
    y, rows = x.clone(), tensor([0, 2])
    y.index_put_((rows, rows), tensor([1.0, 2.0]), accumulate=True)
    y.index_add_(0, rows, x[:2], alpha=2).index_fill_(1, rows, 0.5).index_copy_(0, rows, x[2:])
    y.scatter_(1, tensor([[0, 1, 2, 3]]), 4.0).scatter_add_(0, tensor([[1, 1, 1, 1]]), x)
    return y


@add
def masked_writing_ops(x: Any) -> Any:
    y = x.clone()
    y.masked_fill_(x > 0, -1.0)
    y.masked_scatter_(x < -0.5, torch.arange(16.0).view(4, 4))
    return y.clamp_(-2, 2).clamp_min_(x)


@add
def copy_with_broadcast_and_cast(x: Any) -> Any:
    y = torch.empty(2, 4, 4, dtype=torch.float64)
    y.copy_(x)
    y[1].copy_(torch.arange(4))
    return y


@add
def fills_of_new_tensors(x: Any) -> Any:
    y = torch.zeros_like(x)
    y.add_(x).fill_diagonal_(3.0)
    z = x.new_empty(2, 2).fill_(1)
    return y, z.mul_(x[:2, :2]), torch.empty(3).zero_()


@add
def arithmetic_chain(x: Any) -> Any:
    y = x.clone().add_(1).mul_(x).sub_(x, alpha=2).div_(3).pow_(2).sqrt_().neg_().abs_().exp_().log_()
    return y.addcmul_(x, x, value=0.5).addcdiv_(x, x.abs() + 1).lerp_(x, 0.1).clamp_(max=1.0)


@add
def augmented_assignments(x: Any) -> Any:
    y = x * 1
    y += 1
    y -= x
    y *= 2
    y /= 3
    y **= 2
    y //= 0.5
    y %= 2
    return y


@add
def integer_and_boolean_writes(x: Any) -> Any:
    n = (x * 10).to(torch.int32)
    n += 1
    n //= 3
    n &= 7
    n |= 8
    n ^= 1
    n <<= 1
    mask = x > 0
    mask |= x < -1
    mask &= n > 2
    return n, mask.logical_not_()


@add
def write_that_keeps_a_narrower_dtype(x: Any) -> Any:
    n = torch.arange(4)
    half = x.half()
    half.add_(x)
    return n.mul_(True), half


@add
def write_with_out_arguments(x: Any) -> Any:
    y = torch.empty(4, 4)
    torch.add(x, 1, out=y)
    z = torch.empty(4, 4)
    torch.mm(x, y, out=z)
    return y, z


@add
def metadata_changed_in_place(x: Any) -> Any:
    y = (x + 1).unsqueeze_(0).transpose_(1, 2)
    z = (x + 2).t_().squeeze_()
    return y.contiguous(), z.sum(0)


@add
def write_into_part_of_an_expanded_copy(x: Any) -> Any:
    y = x[:1].expand(3, 4).clone()
    y[1] += 1
    return y


@add
def swap_of_rows(x: Any) -> Any:
    y = x.clone()
    y[[0, 1]] = y[[1, 0]]
    y[2], y[3] = y[3].clone(), y[2].clone()
    return y


@add
def accumulation_in_a_loop(x: Any) -> Any:
    total = torch.zeros(4)
    states = []
    for row in x:
        total += row
        states.append(total.clone())
    return torch.stack(states), total


@add
def foreach_in_place(x: Any) -> Any:
    parts = [x + 1, x[0] * 2]
    torch._foreach_add_(parts, 1.0)
    torch._foreach_mul_(parts, [2.0, 3.0])
    return parts
