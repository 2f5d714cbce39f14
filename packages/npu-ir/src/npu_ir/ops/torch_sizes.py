"""Conversion between PyTorch's symbolic sizes and expressions of the IR, and types of FakeTensors."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch

from npu_ir._torch.sizes import nonempty_stride
from npu_ir.core.types import ScalarType, TensorType, Type, contiguous_strides, type_of
from npu_ir.symbolic.expressions import Dim, Expr, Number, call
from npu_ir.symbolic.functions import FUNCTIONS

_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


class NotExpressibleError(Exception):
    """A SymPy expression has no equivalent in the expressions of the IR."""


def traced_type(value: Any, dim: Callable[[Any], Dim]) -> Type:
    """Return the type of a FakeTensor, a number, symbolic or not, or None; ParseError for anything else.

    ``dim`` converts an int or a SymInt to a size of the graph.
    """
    if isinstance(value, torch.Tensor):
        return _tensor_type(value, dim)
    if not isinstance(value, _SYMBOLIC):
        return type_of(value)
    if isinstance(value, torch.SymInt):
        return ScalarType("int", dim(value))
    return ScalarType("float" if isinstance(value, torch.SymFloat) else "bool")


def _tensor_type(tensor: torch.Tensor, dim: Callable[[Any], Dim]) -> TensorType:
    shape = tuple(map(dim, tensor.shape))
    if tensor.layout is not torch.strided:
        return TensorType(shape, tensor.dtype, layout=tensor.layout)
    strides = tuple(dim(nonempty_stride(stride)) for stride in tensor.stride())
    return TensorType(shape, tensor.dtype, None if _is_contiguous(shape, strides) else strides)


def _is_contiguous(shape: tuple[Dim, ...], strides: tuple[Dim, ...]) -> bool:
    pairs = zip(shape, strides, contiguous_strides(shape), strict=True)
    return 0 in shape or all(size == 1 or actual == wanted for size, actual, wanted in pairs)


def from_sympy(expression: Any, symbol: Callable[[Any], Expr]) -> Any:
    """Convert the SymPy expression of a SymInt to one of the IR; ``symbol`` converts its symbols.

    Raises:
        NotExpressibleError: A part of it has no equivalent.
        GraphError, ArithmeticError: As for `npu_ir.symbolic.expressions.call`.
    """
    kind = type(expression).__name__
    if kind == "Symbol":
        return symbol(expression)
    if expression.is_Integer:
        return int(expression)
    if expression.is_Float:
        return float(expression)
    if expression.is_Rational:
        return call("truediv", int(expression.p), int(expression.q))
    convert = _FROM_SYMPY.get(kind)
    if convert is None:
        raise NotExpressibleError(kind)
    return convert(*(from_sympy(part, symbol) for part in _arguments_of(expression)))


def to_symbolic(number: Number, values: Mapping[str, Any]) -> Any:
    """Convert an expression of the IR to a SymInt; ``values`` has the SymInt of each symbol."""
    if not isinstance(number, Expr):
        return number
    total: Any = 0
    for monomial, coefficient in number.terms:
        product: Any = coefficient
        for factor, power in monomial:
            if isinstance(factor, str):
                value = values[factor]
            else:
                arguments = (to_symbolic(part, values) for part in factor.arguments)
                evaluate = _OF_SYMBOLIC.get(factor.function, FUNCTIONS[factor.function].evaluate)
                value = evaluate(*arguments)
            for _ in range(power):
                product = product * value
        total = total + product
    return total


def _arguments_of(expression: Any) -> list[Any]:
    """Return the arguments of a SymPy expression; raise for a product with a fraction."""
    if (
        type(expression).__name__ == "Mul"
        and expression.args[0].is_Rational
        and not expression.args[0].is_Integer
    ):
        numerator, denominator = expression.as_numer_denom()
        raise NotExpressibleError(f"{numerator}/{denominator}")
    return list(expression.args)


def _function(name: str) -> Callable[..., Any]:
    return functools.partial(call, name)


# The size functions whose implementations on numbers do not take SymInts.
_OF_SYMBOLIC: Mapping[str, Callable[..., Any]] = {
    "max": lambda *items: functools.reduce(torch.sym_max, items),
    "min": lambda *items: functools.reduce(torch.sym_min, items),
    "sqrt": torch.sym_sqrt,
}

# By name of the class, in SymPy or torch.utils._sympy.functions: neither needs to be imported here.
_FROM_SYMPY: Mapping[str, Callable[..., Any]] = {
    "Add": lambda *parts: functools.reduce(operator.add, parts),
    "Mul": lambda *parts: functools.reduce(operator.mul, parts),
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
    "ToFloat": lambda part: part,
    "Identity": lambda part: part,
    "OpaqueUnaryFn_sqrt": _function("sqrt"),
}
