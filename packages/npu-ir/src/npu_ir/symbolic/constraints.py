"""Ranges of symbols, and constraints between them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from npu_ir.errors import GraphError
from npu_ir.symbolic.expressions import Number, substitute_symbols, symbols_in

RELATIONS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}


@dataclass(frozen=True, slots=True)
class Range:
    """The values that a symbol may take, both ends included; None means unbounded."""

    low: int | None = 0
    high: int | None = None

    @property
    def is_empty(self) -> bool:
        return self.low is not None and self.high is not None and self.high < self.low

    def __contains__(self, value: int) -> bool:
        return (self.low is None or self.low <= value) and (self.high is None or value <= self.high)

    def __str__(self) -> str:
        return f"[{'-inf' if self.low is None else self.low}, {'inf' if self.high is None else self.high}]"


@dataclass(frozen=True, slots=True)
class Constraint:
    """A relation between sizes that a graph assumes, such as ``mod(s0, 2) == 0``."""

    left: Number
    relation: str
    right: Number

    @property
    def symbols(self) -> set[str]:
        return symbols_in((self.left, self.right))

    def holds(self, values: Mapping[str, int]) -> bool:
        """Return whether it holds for these values of its symbols; False if a side has no value."""
        try:
            sides = substitute_symbols(self.left, values), substitute_symbols(self.right, values)
        except GraphError:
            return False
        return not symbols_in(sides) and RELATIONS[self.relation](*sides)

    def __str__(self) -> str:
        return f"{self.left} {self.relation} {self.right}"
