"""Control flow: cond, while_loop, scan, map and associative_scan, nested and inside each other."""

from typing import Any

import torch
from torch import nn, ones, randn, tensor, zeros
from torch._higher_order_ops import associative_scan, scan, while_loop
from torch._higher_order_ops.map import map as map_rows
from torch.export import Dim

from tests.support.corpus.case import Call, Table, call, floats

batch = Dim("batch", min=2, max=64)


def both_ways() -> list[Call]:
    return [call(ones(4, 3)), call(-ones(4, 3))]


def any_rows() -> list[Call]:
    return [call(ones(7, 3)), call(-ones(5, 3))]


CASES = Table(floats((4, 3)), more_inputs=both_ways)
function = CASES.function
rows = CASES.given(CASES.inputs, more_inputs=any_rows, dynamic_shapes=({0: batch},))


class Branching(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(3, 2), nn.Linear(3, 2)

    def forward(self, x: Any) -> Any:
        return torch.cond(x.sum() > 0, lambda y: self.left(y).relu(), lambda y: self.right(y) * 2, (x,))


CASES.module("cond_with_weights", Branching, op="higher_order.cond")
rows.module("cond_of_any_batch", Branching)
function("cond", lambda x: torch.cond(x.sum() > 0, lambda y: y.sin(), lambda y: y.cos(), (x,)))
function("cond_without_operands",
    lambda x: torch.cond(x.sum() > 0, lambda: zeros(2), lambda: ones(2), ()) + x[0, 0])  # fmt: skip
function(
    "cond_with_a_constant",
    lambda x: torch.cond(
        x.sum() > 0, lambda y: y + tensor([1.0, 2, 3]), lambda y: y - tensor([1.0, 2, 3]), (x,)
    ),
)


@CASES.add()
def cond_with_many_results(x: Any) -> Any:
    y, z = torch.cond(x.sum() > 0, lambda y: (y + 1, y.sum()), lambda y: (y - 1, y.mean()), (x,))
    return {"y": y, "z": z * 2}


rows.function(
    "cond_that_reads_a_size",
    lambda x: torch.cond(x.sum() > 0, lambda y: y * y.shape[0], lambda y: y / (y.shape[0] + 1), (x,)),
)
rows.function("cond_by_size", lambda x: torch.cond(x.shape[0] > 4, lambda y: y + 1, lambda y: y - 1, (x,)))


@CASES.add()
def cond_inside_cond(x: Any) -> Any:
    def inner(y: Any) -> Any:
        return torch.cond(y.max() > 0.5, lambda z: z.exp(), lambda z: -z, (y,))

    return torch.cond(x.sum() > 0, inner, lambda y: y * 3, (x,))


@CASES.add()
def cond_after_cond(x: Any) -> Any:
    y = torch.cond(x.sum() > 0, lambda y: y + 1, lambda y: y - 1, (x,))
    return torch.cond(y.sum() > 2, lambda z: z.sin(), lambda z: z.cos(), (y,))


function("item_as_predicate",
    lambda x: torch.cond((x > 0).sum().item() > 6, lambda y: y + 1, lambda y: y - 1, (x,)))  # fmt: skip
function("while_loop_to_a_count",
    lambda x: while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * 2), (tensor(0), x)),
    op="higher_order.while_loop")  # fmt: skip
function("while_loop_by_content",
    lambda x: while_loop(lambda y: y.abs().sum() < 100, lambda y: (y * 2 + 0.01,), (x,)))  # fmt: skip


@rows.add(holding=lambda: {"layer": nn.Linear(3, 3)})
def while_loop_with_weights(self: Any, x: Any) -> Any:
    return while_loop(lambda i, y: i < 4, lambda i, y: (i + 1, self.layer(y).tanh()), (tensor(0), x))[1]


@CASES.add()
def cond_inside_while_loop(x: Any) -> Any:
    def step(i: Any, y: Any) -> Any:
        return i + 1, torch.cond(y.sum() > 0, lambda z: z - 1, lambda z: z + 2, (y,))

    return while_loop(lambda i, y: i < 5, step, (tensor(0), x))


@CASES.add()
def while_loop_inside_while_loop(x: Any) -> Any:
    def inner(y: Any) -> Any:
        return while_loop(lambda j, z: j < 2, lambda j, z: (j + 1, z + 1), (tensor(0), y))[1]

    return while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, inner(y) * 1.5), (tensor(0), x))


@CASES.add()
def while_loop_inside_cond(x: Any) -> Any:
    def many(y: Any) -> Any:
        return while_loop(lambda j, z: j < 2, lambda j, z: (j + 1, z * 2), (tensor(0), y))[1]

    return torch.cond(x.sum() > 0, many, lambda y: y + 0.5, (x,))


function("scan_of_rows", lambda x: scan(lambda carry, row: (carry + row, carry * row), x[0] * 1, x),
    op="higher_order.scan")  # fmt: skip


@rows.add(holding=lambda: {"layer": nn.Linear(6, 3)})
def scan_with_weights(self: Any, x: Any) -> Any:
    def step(state: Any, row: Any) -> Any:
        new = self.layer(torch.cat([state, row])).tanh()
        return new, new * 2

    return scan(step, x.new_zeros(3), x)


@CASES.add()
def cond_inside_scan(x: Any) -> Any:
    def step(carry: Any, row: Any) -> Any:
        return carry + torch.cond(row.sum() > 0, lambda y: y * 2, lambda y: y - 1, (row,)), carry * 1

    return scan(step, x[0] * 0, x)


rows.function(
    "map_of_rows", lambda x: map_rows(lambda row: row * 2 + row.sum(), x), op="higher_order.map_impl"
)
function("map_with_another_operand", lambda x, y: map_rows(lambda row, other: row @ other + other, x, y),
    floats((4, 3), (3,)), more_inputs=lambda: [call(randn(2, 3), randn(3))],
    dynamic_shapes=({0: batch}, None))  # fmt: skip
function("map_inside_map", lambda x: map_rows(lambda row: map_rows(lambda element: element * 2 + 1, row), x))
function(
    "cond_inside_map",
    lambda x: map_rows(lambda row: torch.cond(row.sum() > 0, lambda y: y + 1, lambda y: y - 1, (row,)), x),
)
function("associative_scan", lambda x: associative_scan(lambda a, b: a + b, x, 0, combine_mode="generic"))
function(
    "associative_scan_of_pairs",
    lambda x: associative_scan(
        lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1]), (x, x + 1), 0, combine_mode="generic"
    ),
)
