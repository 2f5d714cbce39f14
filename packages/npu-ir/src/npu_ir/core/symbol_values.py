"""Values of a graph's symbols in one run: solved from sizes where they first appear, checked elsewhere."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from npu_ir.core.types import ScalarType, TensorType, Type
from npu_ir.errors import GraphError
from npu_ir.symbolic.constraints import Range
from npu_ir.symbolic.expressions import Dim, Expr


@dataclass(frozen=True, slots=True)
class SizePosition:
    """The position of a size: a dimension of the tensor called ``name``, or its stride; or a number."""

    name: str
    axis: int | None = None
    is_stride: bool = False

    def __str__(self) -> str:
        kind = "stride" if self.is_stride else "dimension"
        return f"%{self.name}" if self.axis is None else f"{kind} {self.axis} of %{self.name}"


# A position, the expected size, and the actual size.
_Size: TypeAlias = "tuple[SizePosition, Dim, int]"


@dataclass(frozen=True, slots=True)
class SizeMismatch:
    """A size that does not fit the graph: its position, and the problem."""

    position: SizePosition
    problem: str

    def __str__(self) -> str:
        return f"{self.position} {self.problem}"


class SymbolValues:
    """The values of symbols that are determined so far.

    Args:
        ranges: The symbols of the graph.
        around: For a region, the values known in the graph around it; not modified.
    """

    def __init__(self, ranges: Mapping[str, Range], around: SymbolValues | None = None) -> None:
        self._ranges = ranges
        self.values: dict[str, int] = dict(around.values) if around else {}
        self._spots: Mapping[str, SizePosition] = around._spots if around else {}

    @classmethod
    def solved(
        cls, ranges: Mapping[str, Range], values: dict[str, int], spots: Mapping[str, SizePosition]
    ) -> SymbolValues:
        """Return values that were solved elsewhere, with the positions that determined them."""
        symbols = cls.__new__(cls)
        symbols._ranges, symbols.values, symbols._spots = ranges, values, spots
        return symbols

    def among(self, ranges: Mapping[str, Range]) -> SymbolValues:
        """Return the values that are determined so far, of these symbols."""
        values = {name: value for name, value in self.values.items() if name in ranges}
        return SymbolValues.solved(ranges, values, self._spots)

    def solve(self, items: Iterable[tuple[str, Type, Any]], *, in_range: bool = True) -> SizeMismatch | None:
        """Solve for symbols such that values have their types; return the first size that misfits, or None.

        A stride determines a symbol only if no size does: tensors may have other strides than their types.

        Args:
            items: Name, type and content of values; all of the right kind, dtype and rank.
            in_range: Reject a value out of the range of its symbol at once; otherwise `out_of_range` reports
                it later, after the graph's own assertions.
        """
        # Repeated substitution: solve each equation with at most one unknown symbol, defer the others, and
        # stop once a round solves none. Sizes that are a bare symbol come first, for the clearest messages.
        given = list(items)
        pending = sorted(
            _sizes(given), key=lambda item: not isinstance(item[1], Expr) or item[1].symbol is None
        )
        strides = list(_strides(given))
        while True:
            later: list[_Size] = []
            for spot, wanted, actual in pending:
                unknown = self._unknown(wanted)
                if len(unknown) > 1:
                    later.append((spot, wanted, actual))
                    continue
                problem = self._solve_symbol(spot, wanted, actual, unknown, in_range=in_range)
                if problem is not None:
                    return SizeMismatch(spot, problem)
            solvable = [item for item in strides if len(self._unknown(item[1])) == 1]
            if len(later) == len(pending) and not solvable:
                return None
            for spot, wanted, actual in solvable:
                problem = self._solve_symbol(spot, wanted, actual, self._unknown(wanted), in_range=in_range)
                if problem is not None:
                    return SizeMismatch(spot, problem)
            pending = later

    def out_of_range(self) -> SizeMismatch | None:
        """Return the position that determined the first symbol with a value out of its range; else None."""
        for name, value in self.values.items():
            if value not in self._ranges[name]:
                made_for = f"the graph was made for {name} in {self._ranges[name]}"
                return SizeMismatch(self._spots[name], f"implies {name} = {value}, {made_for}")
        return None

    def describe(self, names: Iterable[str]) -> str:
        """Describe the values of symbols and their positions: ``s0 is 4 by dimension 0 of %x``."""
        determined = sorted(name for name in names if name in self.values)
        return ", ".join(f"{name} is {self.values[name]} by {self._spots[name]}" for name in determined)

    def _unknown(self, wanted: Dim) -> Collection[str]:
        return wanted.symbols - self.values.keys() if isinstance(wanted, Expr) else ()

    def _solve_symbol(
        self, spot: SizePosition, wanted: Dim, actual: int, unknown: Collection[str], *, in_range: bool
    ) -> str | None:
        """Solve for the unknown symbol, if there is one; return the problem with the size, or None."""
        # At most one symbol is unknown here; without any, the size is only compared.
        if not isinstance(wanted, Expr):
            return None if wanted == actual else f"is {actual}, the graph needs {wanted}"
        for name in unknown:
            partial = wanted.substitute(self.values)
            value = partial.solve(name, actual) if isinstance(partial, Expr) else None
            if value is None:
                return f"is {actual}, the graph needs {wanted} for an integer {name}"
            if in_range and value not in self._ranges[name]:
                text = f"{actual}" if wanted.symbol else f"{actual}, so {name} is {value}"
                return f"is {text}, the graph was made for {name} in {self._ranges[name]}"
            self.values[name] = value
            self._spots = {**self._spots, name: spot}
        try:
            expected = wanted.substitute(self.values)
        except GraphError as error:
            return f"is {actual}, but {error.message}"
        if expected == actual:
            return None
        needed = f"{wanted} = {expected}" if wanted.symbol else f"{wanted}, which is {expected}"
        return f"is {actual}, the graph needs {needed} ({self.describe(wanted.symbols)})"


def _sizes(items: Iterable[tuple[str, Type, Any]]) -> Iterator[_Size]:
    for name, wanted, actual in items:
        if isinstance(wanted, TensorType):
            for axis, size in enumerate(wanted.shape):
                yield SizePosition(name, axis), size, actual.shape[axis]
        elif isinstance(wanted, ScalarType) and wanted.value is not None:
            yield SizePosition(name), wanted.value, actual


def _strides(items: Iterable[tuple[str, Type, Any]]) -> Iterator[_Size]:
    for name, wanted, actual in items:
        if isinstance(wanted, TensorType) and wanted.strides is not None:
            for axis, stride in enumerate(wanted.strides):
                yield SizePosition(name, axis, is_stride=True), stride, actual.stride(axis)
