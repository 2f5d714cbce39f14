"""Symbolic sizes: comparisons without guards, and their SymPy expressions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

# The names of SymPy for relations, as they stand in a guard.
RELATIONS = {
    "Equality": "==",
    "Unequality": "!=",
    "LessThan": "<=",
    "StrictLessThan": "<",
    "GreaterThan": ">=",
    "StrictGreaterThan": ">",
}


def is_statically_true(condition: Any) -> bool:
    """Return whether a comparison of sizes provably holds for all values of the symbols; adds no guard."""
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    return condition if isinstance(condition, bool) else bool(statically_known_true(condition))


def are_sizes_equal(left: Sequence[Any], right: Sequence[Any]) -> bool:
    """Return whether sizes or strides are provably equal for all values of the symbols; adds no guard."""
    return len(left) == len(right) and all(
        size_expression(a) == size_expression(b) or is_statically_true(a == b)
        for a, b in zip(left, right, strict=True)
    )


def size_expression(size: Any) -> Any:
    """Return a size as an ``int``, or as the SymPy expression of a SymInt."""
    if isinstance(size, int):
        return size
    expression = size.node.expr if isinstance(size, torch.SymInt) else size
    return int(expression) if expression.is_Integer else expression


def nonempty_stride(stride: Any) -> Any:
    """Return a stride or its expression for a non-empty tensor, in which ``max(1, size)`` is ``size``."""
    expression = size_expression(stride)
    if isinstance(expression, int):
        return expression
    from torch.utils._sympy.functions import Max

    replacements = {
        part: part.args[1 - part.args.index(1)]
        for part in expression.atoms(Max)
        if len(part.args) == 2 and 1 in part.args
    }
    return expression.xreplace(replacements)


def is_data_dependent(symbol: Any) -> bool:
    """Return whether a SymPy symbol is a size that depends on the content of a tensor."""
    from torch.utils._sympy.symbol import SymT, symbol_is_type

    return bool(symbol_is_type(symbol, (SymT.UNBACKED_INT, SymT.UNBACKED_FLOAT)))


def is_float_symbol(symbol: Any) -> bool:
    """Return whether a SymPy symbol is a float."""
    from torch.utils._sympy.symbol import SymT, symbol_is_type

    return bool(symbol_is_type(symbol, (SymT.FLOAT, SymT.UNBACKED_FLOAT)))
