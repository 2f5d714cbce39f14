"""The values of a graph's symbols in one run: found where they first appear, required everywhere else."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TypeAlias

from npu_ir.errors import GraphError
from npu_ir.symbols import Dim, Expr, Range, substituted
from npu_ir.types import ScalarType, TensorType, Type

# What has a size (an input or a value), and in which dimension; None for a number.
Spot: TypeAlias = "tuple[str, int | None]"


class SymbolValues:
    """The symbols whose value is known by now.

    Args:
        ranges: The symbols of the graph.
        around: What is known where the region that runs belongs; it is not changed.

    Attributes:
        values: The value of each symbol that has one.
    """

    def __init__(self, ranges: Mapping[str, Range], around: SymbolValues | None = None) -> None:
        self._ranges = ranges
        self.values: dict[str, int] = dict(around.values) if around else {}
        self._spots: dict[str, Spot] = dict(around._spots) if around else {}

    def fit(
        self, sizes: Iterable[tuple[Spot, Dim, int]], *, in_range: bool = True
    ) -> tuple[Spot, str] | None:
        """Find the values of symbols such that the sizes are what they should be.

        Args:
            sizes: For each spot the size it should have, and the one it has.
            in_range: Whether values out of the range of a symbol are wrong at once; else `out_of_range`
                tells them, after the graph's own assertions.

        Returns:
            The first spot whose size cannot be right, and what is wrong with it; None if all are.
        """
        pending = sorted(sizes, key=lambda item: not isinstance(item[1], Expr) or item[1].symbol is None)
        while pending:
            later = []
            for spot, wanted, actual in pending:
                unknown = wanted.symbols - self.values.keys() if isinstance(wanted, Expr) else ()
                if len(unknown) > 1:
                    later.append((spot, wanted, actual))
                    continue
                problem = self._learn(spot, wanted, actual, unknown, in_range=in_range)
                if problem is not None:
                    return spot, problem
            if len(later) == len(pending):
                break
            pending = later
        return None

    def learn_strides(self, name: str, type: Type, actual: object) -> tuple[Spot, str] | None:
        """Find the values of symbols that only a stride of a tensor tells; return what is wrong, as `fit` does."""
        if not isinstance(type, TensorType) or type.strides is None or type.symbols <= self.values.keys():
            return None
        for axis, wanted in enumerate(type.strides):
            known = substituted(wanted, self.values)
            if isinstance(known, Expr) and len(known.symbols) == 1 and known.solvable(*known.symbols):
                spot = f"{name}'s stride {axis}", None
                problem = self._learn(spot, wanted, actual.stride(axis), known.symbols)  # type: ignore[attr-defined]
                if problem is not None:
                    return spot, problem
        return None

    def out_of_range(self) -> tuple[Spot, str] | None:
        """Return the first symbol whose value is none of its range, as `fit` returns what is wrong."""
        for name, value in self.values.items():
            if value not in self._ranges[name]:
                return self._spots[
                    name
                ], f"tells that {name} is {value}, the graph was made for {name} in {self._ranges[name]}"
        return None

    def _learn(
        self, spot: Spot, wanted: Dim, actual: int, unknown: Collection[str], *, in_range: bool = True
    ) -> str | None:
        if not isinstance(wanted, Expr):
            return None if wanted == actual else f"is {actual}, the graph needs {wanted}"
        for name in unknown:
            known = wanted.substitute(self.values)
            value = known.solve(name, actual) if isinstance(known, Expr) else None
            if value is None:
                return f"is {actual}, the graph needs {wanted} for an integer {name}"
            if in_range and value not in self._ranges[name]:
                shown = f"{actual}" if wanted.symbol else f"{actual}, so {name} is {value}"
                return f"is {shown}, the graph was made for {name} in {self._ranges[name]}"
            self.values[name] = value
            self._spots[name] = spot
        try:
            expected = wanted.substitute(self.values)
        except GraphError as error:
            return f"is {actual}, but {error.message}"
        if expected == actual:
            return None
        return (
            f"is {actual}, the graph needs {wanted}"
            + (f" = {expected}" if wanted.symbol else f", which is {expected}")
            + self._known(wanted)
        )

    def _known(self, wanted: Expr) -> str:
        found = [
            f"{name} is {self.values[name]} by {spot_text(self._spots[name])}"
            for name in sorted(wanted.symbols)
        ]
        return f" ({', '.join(found)})"


def spot_text(spot: Spot) -> str:
    """Return a spot in words: ``dimension 0 of %x``."""
    name, axis = spot
    return f"%{name}" if axis is None else f"dimension {axis} of %{name}"


def sizes_of(name: str, wanted: Type, actual: object) -> list[tuple[Spot, Dim, int]]:
    """Return for each size of a value what it should be and what it is, as `SymbolValues.fit` takes them."""
    if isinstance(wanted, TensorType):
        shape = actual.shape  # type: ignore[attr-defined]
        return [((name, axis), *pair) for axis, pair in enumerate(zip(wanted.shape, shape, strict=True))]
    if isinstance(wanted, ScalarType) and wanted.value is not None:
        return [((name, None), wanted.value, actual)]  # type: ignore[list-item]
    return []
