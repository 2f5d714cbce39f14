"""Exported programs: pytree specifications, symbolic sizes and their ranges."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any


def tree_spec(tree: Any) -> Any:
    """Return the pytree specification of a structure, as an exported program stores it."""
    from torch.utils import _pytree

    return _pytree.tree_structure(tree)


class ExportContext:
    """The FakeTensorMode and ShapeEnv of an exported program.

    Attributes:
        mode: The mode of its FakeTensors.
        ranges: The range of each symbol, as an exported program stores it.
    """

    def __init__(self) -> None:
        from torch._subclasses import FakeTensorMode
        from torch.fx.experimental.symbolic_shapes import ShapeEnv

        self._env = ShapeEnv()
        self.mode = FakeTensorMode(shape_env=self._env, allow_non_fake_inputs=True)
        self.ranges: dict[Any, Any] = {}

    def create_size(
        self,
        name: str,
        low: int | None,
        high: int | None,
        example: int,
        place: tuple[tuple[str | int, ...], int | None] | None,
    ) -> Any:
        """Return a new SymInt.

        Args:
            name: The name of the symbol.
            low: Its smallest value; None for unbounded.
            high: Its largest value; None for unbounded.
            example: One of its values, the hint by which PyTorch takes branches.
            place: The path to the argument that determines its value (the parameter, then keys and
                indices), and the dimension; no dimension for a number. None if no single size determines
                it.
        """
        from torch._dynamo.source import (
            ConstantSource,
            GetItemSource,
            LocalSource,
            TensorProperty,
            TensorPropertySource,
        )
        from torch.fx.experimental.symbolic_shapes import DimDynamic, StrictMinMaxConstraint

        source: Any = ConstantSource(name)
        if place is not None:
            (parameter, *keys), axis = place
            source = LocalSource(str(parameter))
            for key in keys:
                source = GetItemSource(source, key)
            source = source if axis is None else TensorPropertySource(source, TensorProperty.SIZE, axis)
        range = _value_range(low, high)
        symbol = self._env.create_symbol(
            example,
            source,
            DimDynamic.DYNAMIC,
            StrictMinMaxConstraint(warn_only=False, vr=range),
            positive=True if low is not None and low > 0 else None,
            do_not_specialize_zero_one=True,
        )
        # A method until torch 2.9.
        source_name = source.name if isinstance(source.name, str) else source.name()
        self._env.source_name_to_debug_name[source_name] = name
        self.ranges[symbol] = range
        return self._env.create_symintnode(symbol, hint=example, source=source)

    def set_range(self, size: Any, low: int | None, high: int | None) -> None:
        """Set the range of a data-dependent size."""
        expression = size.node.expr
        if expression.is_Symbol and expression not in self.ranges:
            self.ranges[expression] = self._env.var_to_range[expression] = _value_range(low, high)

    @contextlib.contextmanager
    def fake_mode(self) -> Iterator[None]:
        """Enter the FakeTensorMode, without guards and assumptions about symbolic sizes."""
        from torch.fx.experimental import _config

        with self.mode, _config.patch(backed_size_oblivious=True), self._env.suppress_guards():  # type: ignore[attr-defined]
            yield

    def unbacked_sizes(self, results: Any) -> dict[Any, Any] | None:
        """Return the paths to the data-dependent sizes in the results of an op."""
        from torch.fx.experimental.symbolic_shapes import compute_unbacked_bindings

        return compute_unbacked_bindings(self._env, results)


def _value_range(low: int | None, high: int | None) -> Any:
    from torch.utils._sympy.numbers import int_oo
    from torch.utils._sympy.value_ranges import ValueRanges

    return ValueRanges(-int_oo if low is None else low, int_oo if high is None else high)
