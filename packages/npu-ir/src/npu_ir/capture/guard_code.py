"""Parser of the guards of a loaded program, which are Python code: ``L['x'].size()[0] % 3 == 0``.

A recursive descent over Python's syntax tree. Negations are pushed inwards (De Morgan), so that a guard
becomes a conjunction of relations; a disjunction cannot be expressed as constraints and is refused.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import Any

from npu_ir.symbolic.constraints import Constraint
from npu_ir.symbolic.expressions import call

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
        ValueError: The guard is not a conjunction of relations between expressible numbers.
    """
    return list(_constraints(ast.parse(code.strip(), mode="eval").body, size_of, holds=True))


def _constraints(guard: ast.expr, size_of: SizeOf, *, holds: bool) -> Iterator[Constraint]:
    """Yield the constraints under which a guard holds or, if not ``holds``, its negation does."""
    if isinstance(guard, ast.UnaryOp) and isinstance(guard.op, ast.Not):
        yield from _constraints(guard.operand, size_of, holds=not holds)
    # De Morgan: under negation, "or" is a conjunction of negated parts, and "and" the refused disjunction.
    elif isinstance(guard, ast.BoolOp) and isinstance(guard.op, ast.And if holds else ast.Or):
        for part in guard.values:
            yield from _constraints(part, size_of, holds=holds)
    elif isinstance(guard, ast.Compare) and len(guard.ops) == 1:
        relation = _RELATIONS[type(guard.ops[0])]
        left, right = _expression(guard.left, size_of), _expression(guard.comparators[0], size_of)
        yield Constraint(left, relation if holds else _OPPOSITES[relation], right)
    else:
        raise ValueError(ast.unparse(guard))


def _expression(node: ast.expr, size_of: SizeOf) -> Any:
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return _expression(node.operand, size_of) * -1
    if isinstance(node, ast.BinOp):
        return _binary_expression(node, size_of)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _FUNCTIONS:
        return call(_FUNCTIONS[node.func.id], *(_expression(part, size_of) for part in node.args))
    if isinstance(node, ast.Subscript) and ast.unparse(node.value).endswith(".size()"):
        assert isinstance(node.value, ast.Call)
        assert isinstance(node.value.func, ast.Attribute)
        axis = _expression(node.slice, size_of)
        return size_of("_".join(_path(node.value.func.value)), axis)
    raise ValueError(ast.unparse(node))


def _binary_expression(node: ast.BinOp, size_of: SizeOf) -> Any:
    left, right = _expression(node.left, size_of), _expression(node.right, size_of)
    if isinstance(node.op, ast.Add):
        return left + right
    if isinstance(node.op, ast.Sub):
        return left - right
    if isinstance(node.op, ast.Mult):
        return left * right
    if type(node.op) not in _OPERATORS:
        raise ValueError(ast.unparse(node))
    return call(_OPERATORS[type(node.op)], left, right)


def _path(node: ast.expr) -> list[str]:
    """Return the keys in ``L['a'][0]``; joined by "_", they are the name of the input's placeholder."""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        return [*_path(node.value), str(node.slice.value)]
    if isinstance(node, ast.Name) and node.id == "L":
        return []
    raise ValueError(ast.unparse(node))
