"""Translation of PyTorch's symbolic sizes, and guards on them, to symbols, expressions and constraints."""

from __future__ import annotations

import ast
import itertools
import operator
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch.export import ExportedProgram

from npu_ir._torch.export import dim_names, guard_code, size_guards, size_ranges
from npu_ir._torch.sizes import is_data_dependent, is_float_symbol, size_expression
from npu_ir.core.types import Type
from npu_ir.errors import ConversionError, GraphError
from npu_ir.graph.graph import Graph
from npu_ir.ops.torch_sizes import NotExpressibleError, from_sympy, traced_type
from npu_ir.symbolic.constraints import Constraint, Range
from npu_ir.symbolic.expressions import Dim, Expr, call, is_symbol_name


class Sizes:
    """The symbols of one exported program, declared in its graph in the order of their first use.

    The sizes of inputs are ``s0``, ``s1``, ..., unless a Dim names them; those that depend on data are
    ``u0``, ``u1``, ... A size that cannot be written as an expression becomes a symbol of its own, which
    takes its value from the tensor that has this size.
    """

    def __init__(self, graph: Graph, program: ExportedProgram) -> None:
        self.graph = graph
        self._program = program
        self._ranges = size_ranges(program)
        self._names = dim_names(program)
        self._symbols: dict[Any, Expr] = {}
        self._dims: dict[Any, Dim] = {}  # by SymPy expression: a program has few distinct sizes
        self._counters = {prefix: itertools.count() for prefix in "su"}

    def type_of(self, value: Any) -> Type:
        """Return the type of a tensor, a number or None in the metadata of an FX node.

        Raises:
            ParseError: ``value`` is something else.
        """
        return traced_type(value, self.dim)

    def dim(self, size: Any) -> Dim:
        """Return a size of PyTorch as a size of the graph."""
        expression = size_expression(size)
        if isinstance(expression, int):
            return expression
        if expression not in self._dims:
            try:
                self._dims[expression] = self._convert(expression)
            except (NotExpressibleError, GraphError, ArithmeticError):
                self._dims[expression] = self._symbols[expression] = self._declare("u", Range(None))
        return self._dims[expression]

    def constraints(self) -> list[Constraint]:
        """Return the program's guards on sizes of its inputs, beyond ranges and equalities."""
        result = []
        # The guards reside in the ShapeEnv of the trace; a loaded program has them as Python code.
        try:
            for relation, left, right in size_guards(self._program, set(self._symbols)):
                result.append(Constraint(self._convert(left), relation, self._convert(right)))
            for code in guard_code(self._program):
                result += constraints_of(code, self._input_size)
        except (NotExpressibleError, GraphError, ArithmeticError, ValueError) as error:
            raise ConversionError(
                f"torch.export took a branch by sizes in a way that a graph cannot state: {error}",
                fix="decide by a comparison of sizes, or by torch.cond",
            ) from error
        return [constraint for constraint in dict.fromkeys(result) if constraint.symbols]

    def _input_size(self, name: str, axis: int) -> Dim:
        """Return the size along ``axis`` of the input whose placeholder is called ``name``."""
        for node in self._program.graph.nodes:
            if node.name == name and isinstance(node.meta.get("val"), torch.Tensor):
                return self.dim(node.meta["val"].shape[axis])
        raise ValueError(f"there is no input {name!r}")

    def _convert(self, expression: Any) -> Any:
        return from_sympy(expression, self._symbol)

    def _symbol(self, sympy_symbol: Any) -> Expr:
        if is_float_symbol(sympy_symbol):
            raise NotExpressibleError(f"{sympy_symbol} is a float")
        if sympy_symbol not in self._symbols:
            prefix, name = "u" if is_data_dependent(sympy_symbol) else "s", str(sympy_symbol)
            self._symbols[sympy_symbol] = self._declare(
                prefix, Range(*self._ranges.get(name, (None, None))), self._names.get(name)
            )
        return self._symbols[sympy_symbol]

    def _declare(self, prefix: str, range: Range, name: str | None = None) -> Expr:
        taken = self.graph.symbols
        if name is None or name in taken or not is_symbol_name(name):
            # Names of Dims that are declared later are reserved for them.
            generated = (f"{prefix}{index}" for index in self._counters[prefix])
            name = next(name for name in generated if name not in taken and name not in self._names.values())
        return self.graph.add_symbol(name, range)


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
_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: partial(call, "floordiv"),
    ast.Div: partial(call, "truediv"),
    ast.Mod: partial(call, "mod"),
    ast.Pow: partial(call, "pow"),
    ast.BitAnd: partial(call, "bitand"),
    ast.BitOr: partial(call, "bitor"),
    ast.BitXor: partial(call, "bitxor"),
}
_FUNCTIONS = {"max": "max", "min": "min", "round": "round_to"}


def constraints_of(code: str, size_of: SizeOf) -> list[Constraint]:
    """Return a guard of a loaded program as constraints; it is Python: ``L['x'].size()[0] % 3 == 0``.

    Negations are pushed inwards (De Morgan). Constraints are a conjunction, so a disjunction is refused.

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
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        left, right = _expression(node.left, size_of), _expression(node.right, size_of)
        return _OPERATORS[type(node.op)](left, right)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _FUNCTIONS:
        return call(_FUNCTIONS[node.func.id], *(_expression(part, size_of) for part in node.args))
    if isinstance(node, ast.Subscript) and ast.unparse(node.value).endswith(".size()"):
        assert isinstance(node.value, ast.Call)
        assert isinstance(node.value.func, ast.Attribute)
        axis = _expression(node.slice, size_of)
        return size_of("_".join(_path(node.value.func.value)), axis)
    raise ValueError(ast.unparse(node))


def _path(node: ast.expr) -> list[str]:
    """Return the keys in ``L['a'][0]``; joined by "_", they are the name of the input's placeholder."""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        return [*_path(node.value), str(node.slice.value)]
    if isinstance(node, ast.Name) and node.id == "L":
        return []
    raise ValueError(ast.unparse(node))
