"""From what PyTorch knows of sizes to the types of a graph: symbols get names, expressions a normal form."""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch.export import ExportedProgram

from npu_ir import _torch
from npu_ir.capture.guard_code import constraints_of
from npu_ir.constraints import Constraint, Range
from npu_ir.errors import ConversionError, GraphError
from npu_ir.graph import Graph
from npu_ir.symbols import Dim, Expr, call, is_symbol_name
from npu_ir.types import ScalarType, TensorType, Type, contiguous_strides, type_of

_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


class Sizes:
    """Names the symbols of one exported program as its graph meets them.

    The sizes of inputs are ``s0``, ``s1``, ..., unless a Dim names them; those that depend on data are
    ``u0``, ``u1``, ... A size that cannot be written as an expression becomes a symbol of its own, which
    takes its value from the tensor that has this size.

    Args:
        graph: Where the symbols are declared.
        program: As torch.export made it.
    """

    def __init__(self, graph: Graph, program: ExportedProgram) -> None:
        self.graph = graph
        self._program = program
        self._ranges = _torch.size_ranges(program)
        self._names = _torch.dim_names(program)
        self._symbols: dict[Any, Expr] = {}
        self._dims: dict[Any, Dim] = {}  # of SymPy's expressions: most sizes of a program are alike
        self._counters = {prefix: itertools.count() for prefix in "su"}

    def type_of(self, value: Any) -> Type:
        """Return the type of a tensor, a number or None in the metadata of an FX node.

        Raises:
            ParseError: It is none of these.
        """
        if isinstance(value, torch.Tensor):
            return self._tensor_type(value)
        if not isinstance(value, _SYMBOLIC):
            return type_of(value)
        if isinstance(value, torch.SymInt):
            return ScalarType("int", self.dim(value))
        return ScalarType("float" if isinstance(value, torch.SymFloat) else "bool")

    def _tensor_type(self, tensor: torch.Tensor) -> TensorType:
        shape = tuple(map(self.dim, tensor.shape))
        if tensor.layout is not torch.strided:
            return TensorType(shape, tensor.dtype, layout=tensor.layout)
        strides = tuple(self.dim(_torch.stride_of_filled(stride)) for stride in tensor.stride())
        return TensorType(shape, tensor.dtype, None if _is_contiguous(shape, strides) else strides)

    def dim(self, size: Any) -> Dim:
        """Return a size of PyTorch's as one of the graph."""
        expression = _torch.size_expression(size)
        if isinstance(expression, int):
            return expression
        if expression not in self._dims:
            try:
                self._dims[expression] = self._converted(expression)
            except (_NotExpressibleError, GraphError, ArithmeticError):
                self._dims[expression] = self._symbols[expression] = self._declared("u", Range(None))
        return self._dims[expression]

    def constraints(self) -> list[Constraint]:
        """Return what the program assumes of sizes of its inputs, beyond ranges and equalities."""
        found = []
        try:
            for relation, left, right in _torch.size_guards(self._program, set(self._symbols)):
                found.append(Constraint(self._converted(left), relation, self._converted(right)))
            for code in _torch.guard_code(self._program):
                found += constraints_of(code, self._input_size)
        except (_NotExpressibleError, GraphError, ArithmeticError, ValueError) as error:
            raise ConversionError(
                f"torch.export took a branch by sizes in a way that a graph cannot state: {error}",
                fix="decide by a comparison of sizes, or by torch.cond",
            ) from error
        return [constraint for constraint in dict.fromkeys(found) if constraint.symbols]

    def _input_size(self, name: str, axis: int) -> Dim:
        """Return a size of the input whose placeholder is called ``name``."""
        for node in self._program.graph.nodes:
            if node.name == name and isinstance(node.meta.get("val"), torch.Tensor):
                return self.dim(node.meta["val"].shape[axis])
        raise ValueError(f"there is no input {name!r}")

    def _converted(self, expression: Any) -> Any:
        """Return a SymPy expression in our form."""
        kind = type(expression).__name__
        if kind == "Symbol":
            return self._symbol(expression)
        if expression.is_Integer:
            return int(expression)
        if expression.is_Float:
            return float(expression)
        if expression.is_Rational:
            return call("truediv", int(expression.p), int(expression.q))
        convert = _FUNCTIONS.get(kind)
        if convert is None:
            raise _NotExpressibleError(kind)
        return convert(*map(self._converted, _whole_factors(expression)))

    def _symbol(self, found: Any) -> Expr:
        if _torch.is_number_of_float(found):
            raise _NotExpressibleError(f"{found} is a float")
        if found not in self._symbols:
            prefix = "u" if _torch.is_data_dependent(found) else "s"
            self._symbols[found] = self._declared(
                prefix, self._range(str(found)), self._names.get(str(found))
            )
        return self._symbols[found]

    def _declared(self, prefix: str, range: Range, name: str | None = None) -> Expr:
        taken = self.graph.symbols
        if name is None or name in taken or not is_symbol_name(name):
            generated = (f"{prefix}{index}" for index in self._counters[prefix])
            name = next(name for name in generated if name not in taken and name not in self._names.values())
        return self.graph.add_symbol(name, range)

    def _range(self, name: str) -> Range:
        return Range(*self._ranges.get(name, (None, None)))


class _NotExpressibleError(Exception):
    """A function of SymPy's that our expressions lack."""


def _is_contiguous(shape: tuple[Dim, ...], strides: tuple[Dim, ...]) -> bool:
    pairs = zip(shape, strides, contiguous_strides(shape), strict=True)
    return 0 in shape or all(size == 1 or actual == wanted for size, actual, wanted in pairs)


def _whole_factors(expression: Any) -> list[Any]:
    """Return the arguments of a SymPy expression; of a product with a fraction: numerator and denominator."""
    if (
        type(expression).__name__ == "Mul"
        and expression.args[0].is_Rational
        and not expression.args[0].is_Integer
    ):
        numerator, denominator = expression.as_numer_denom()
        raise _NotExpressibleError(f"{numerator}/{denominator}")
    return list(expression.args)


def _sum(*parts: Any) -> Any:
    return functools.reduce(operator.add, parts)


def _product(*parts: Any) -> Any:
    return functools.reduce(operator.mul, parts)


def _same(part: Any) -> Any:
    return part


def _function(name: str) -> Callable[..., Any]:
    return functools.partial(call, name)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "Add": _sum,
    "Mul": _product,
    "Pow": _function("pow"),
    "PowByNatural": _function("pow"),
    "FloatPow": _function("pow"),
    "FloorDiv": _function("floordiv"),
    "CleanDiv": _function("floordiv"),
    "CeilDiv": lambda number, divisor: call("floordiv", number + divisor - 1, divisor),
    "IntTrueDiv": _function("truediv"),
    "FloatTrueDiv": _function("truediv"),
    "Mod": _function("mod"),
    "PythonMod": _function("mod"),
    "ModularIndexing": lambda number, divisor, modulus: call(
        "mod", call("floordiv", number, divisor), modulus
    ),
    "Max": _function("max"),
    "Min": _function("min"),
    "TruncToInt": _function("trunc"),
    "FloorToInt": _function("floor"),
    "CeilToInt": _function("ceil"),
    "RoundToInt": _function("round"),
    "RoundDecimal": _function("round_to"),
    "BitwiseFn_bitwise_and": _function("bitand"),
    "BitwiseFn_bitwise_or": _function("bitor"),
    "BitwiseFn_bitwise_xor": _function("bitxor"),
    "LShift": _function("lshift"),
    "RShift": _function("rshift"),
    "ToFloat": _same,
    "Identity": _same,
    "OpaqueUnaryFn_sqrt": _function("sqrt"),
}
