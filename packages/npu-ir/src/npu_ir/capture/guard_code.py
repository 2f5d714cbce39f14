"""Parser of the guards of a loaded program, which are Python code: ``L['x'].size()[0] % 3 == 0``.

A recursive descent over Python's syntax tree. Negations are pushed inwards (De Morgan), so that a guard
becomes a conjunction of relations; a disjunction cannot be expressed as constraints and is refused.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import Any

from npu_ir.constraints import Constraint
from npu_ir.symbols import call

# From the name of an input's placeholder and a dimension to the expression of that size.
SizeOf = Callable[[str, int], Any]

_RELATIONS: dict[type[ast.cmpop], str] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.LtE: "<=",
    ast.GtE: ">=",
    ast.Lt: "<",
    ast.Gt: ">",
}
_OPPOSITES = {"==": "!=", "!=": "==", "<=": ">", ">=": "<", "<": ">=", ">": "<="}
_OPERATORS: dict[type[ast.operator], str] = {
    ast.FloorDiv: "floordiv",
    ast.Div: "truediv",
    ast.Mod: "mod",
    ast.Pow: "pow",
    ast.BitAnd: "bitand",
    ast.BitOr: "bitor",
    ast.BitXor: "bitxor",
}
_FUNCTIONS = {"max": "max", "min": "min", "round": "round_to"}


def constraints_of(code: str, size_of: SizeOf) -> list[Constraint]:
    """Return a guard as a conjunction of constraints.

    Raises:
        ValueError: The guard is not made of relations between expressible numbers, or contains a disjunction.
    """
    return list(_constraints(ast.parse(code.strip(), mode="eval").body, size_of, holds=True))


def _constraints(found: ast.expr, size_of: SizeOf, *, holds: bool) -> Iterator[Constraint]:
    """Yield the constraints under which a guard holds or, if not ``holds``, its negation does."""
    if isinstance(found, ast.UnaryOp) and isinstance(found.op, ast.Not):
        yield from _constraints(found.operand, size_of, holds=not holds)
    # De Morgan: under negation, "or" is a conjunction of negated parts, and "and" the refused disjunction.
    elif isinstance(found, ast.BoolOp) and isinstance(found.op, ast.And if holds else ast.Or):
        for part in found.values:
            yield from _constraints(part, size_of, holds=holds)
    elif isinstance(found, ast.Compare) and len(found.ops) == 1:
        relation = _RELATIONS[type(found.ops[0])]
        left, right = _number(found.left, size_of), _number(found.comparators[0], size_of)
        yield Constraint(left, relation if holds else _OPPOSITES[relation], right)
    else:
        raise ValueError(ast.unparse(found))


def _number(found: ast.expr, size_of: SizeOf) -> Any:
    if isinstance(found, ast.Constant) and isinstance(found.value, (int, float)):
        return found.value
    if isinstance(found, ast.UnaryOp) and isinstance(found.op, ast.USub):
        return _number(found.operand, size_of) * -1
    if isinstance(found, ast.BinOp):
        return _binary(found, size_of)
    if isinstance(found, ast.Call) and isinstance(found.func, ast.Name) and found.func.id in _FUNCTIONS:
        return call(_FUNCTIONS[found.func.id], *(_number(part, size_of) for part in found.args))
    if isinstance(found, ast.Subscript) and ast.unparse(found.value).endswith(".size()"):
        assert isinstance(found.value, ast.Call)
        assert isinstance(found.value.func, ast.Attribute)
        axis = _number(found.slice, size_of)
        return size_of("_".join(_path(found.value.func.value)), axis)
    raise ValueError(ast.unparse(found))


def _binary(found: ast.BinOp, size_of: SizeOf) -> Any:
    left, right = _number(found.left, size_of), _number(found.right, size_of)
    if isinstance(found.op, ast.Add):
        return left + right
    if isinstance(found.op, ast.Sub):
        return left - right
    if isinstance(found.op, ast.Mult):
        return left * right
    if type(found.op) not in _OPERATORS:
        raise ValueError(ast.unparse(found))
    return call(_OPERATORS[type(found.op)], left, right)


def _path(found: ast.expr) -> list[str]:
    """Return the keys in ``L['a'][0]``; joined by "_", they are the name of the input's placeholder."""
    if isinstance(found, ast.Subscript) and isinstance(found.slice, ast.Constant):
        return [*_path(found.value), str(found.slice.value)]
    if isinstance(found, ast.Name) and found.id == "L":
        return []
    raise ValueError(ast.unparse(found))
