"""Custom operators of torch.library: functional, mutating, with lists, None, or no Python function."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


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


def pick(
    xs: Sequence[Tensor | None], index: int, *, otherwise: Tensor | None = None, mode: str = "sum"
) -> Tensor:
    chosen = xs[index] if xs[index] is not None else otherwise
    assert chosen is not None
    return chosen.sum(0) if mode == "sum" else chosen.mean(0)


LIBRARY.impl("pick", pick, "CompositeExplicitAutograd")
LIBRARY.impl("pick.scaled", lambda x, scale: x * scale, "CompositeExplicitAutograd")

# Ops whose names say what they are not: ``shift_`` does not do what ``shift`` does, with the same arguments.
LIBRARY.define("shift(Tensor x, float by) -> Tensor")
LIBRARY.define("shift_(Tensor(a!) x, float by) -> ()")
LIBRARY.define("turn(Tensor x) -> Tensor")
LIBRARY.define("turn_(Tensor(a!) x) -> Tensor(a!)")


def shift_(x: Tensor, by: float) -> None:
    x.mul_(by)


LIBRARY.impl("shift", lambda x, by: x + by, "CompositeExplicitAutograd")
LIBRARY.impl("shift_", shift_, "CompositeExplicitAutograd")
LIBRARY.impl("turn", lambda x: -x, "CompositeExplicitAutograd")
LIBRARY.impl("turn_", lambda x: x.add_(1), "CompositeExplicitAutograd")
torch.library.register_fake("corpus_schema::shift", lambda x, by: torch.empty_like(x), lib=LIBRARY)
torch.library.register_fake("corpus_schema::shift_", lambda x, by: None, lib=LIBRARY)
torch.library.register_fake("corpus_schema::turn", torch.empty_like, lib=LIBRARY)
torch.library.register_fake("corpus_schema::turn_", lambda x: x, lib=LIBRARY)
