"""Integer expressions over named symbols, for symbolic sizes.

An expression is a multivariate polynomial in expanded normal form, with symbols and function calls as
indeterminates, so that equal polynomials compare equal: ``2*(s0+1)`` is ``2*s0+2``. Coefficients are
integers, or floats in the argument of a rounding function (``trunc(1.5*s0)``, as in resizing an image).
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any, TypeAlias

from npu_ir.errors import GraphError
from npu_ir.symbolic.functions import FUNCTIONS, Integrality, require_bounded, value_of

SYMBOL_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

# Limits, since an expression may come from a file, and expanding a short text can take forever.
_MAX_TERMS = 10_000  # of a product, before like terms are combined
_MAX_EXPONENT = 1024
_MAX_EXPANDED_EXPONENT = 8  # exponent of a sum that is still multiplied out


@dataclass(frozen=True)
class Call:
    """A function applied to expressions: an opaque factor of a term."""

    function: str
    arguments: tuple[Number, ...]

    def __str__(self) -> str:
        infix = FUNCTIONS[self.function].infix
        if infix is not None:
            return infix.join(map(_format_operand, self.arguments))
        return f"{self.function}({', '.join(map(str, self.arguments))})"


Factor: TypeAlias = "str | Call"
# Factors with their powers, sorted by text: ``((s0, 2), (s1, 1))`` is s0 squared times s1.
Monomial: TypeAlias = "tuple[tuple[Factor, int], ...]"


@dataclass(frozen=True)
class Expr:
    """A sum of terms in normal form; a constant is never an ``Expr``, but an ``int`` or ``float``.

    Attributes:
        terms: Pairs of monomial and coefficient, highest degree first.
    """

    terms: tuple[tuple[Monomial, int | float], ...]

    # Cached in the instance's __dict__, which is why the class has no slots.
    @cached_property
    def symbols(self) -> frozenset[str]:
        """The names of the symbols in it."""
        names: set[str] = set()
        for monomial, _ in self.terms:
            for factor, _ in monomial:
                names.update([factor] if isinstance(factor, str) else symbols_in(factor.arguments))
        return frozenset(names)

    @property
    def symbol(self) -> str | None:
        """The name of the symbol, if the expression is a single symbol; otherwise None."""
        (monomial, coefficient), *others = self.terms
        if others or coefficient != 1 or len(monomial) != 1:
            return None
        factor, power = monomial[0]
        return factor if isinstance(factor, str) and power == 1 else None

    def substitute(self, values: Mapping[str, Dim]) -> Dim:
        """Return the expression with symbols replaced; an integer if none is left.

        Raises:
            GraphError: The expression is undefined there, as by a division by zero.
        """
        try:
            result = total(
                _substitute_in_term(coefficient, monomial, values) for monomial, coefficient in self.terms
            )
        except (ArithmeticError, TypeError, ValueError) as error:
            raise GraphError(f"{self} has no value for {_format_values(values, self)}: {error}") from error
        return result  # type: ignore[no-any-return]

    def is_linear_in(self, name: str) -> bool:
        """Return whether the expression is linear in symbol ``name``, with a constant coefficient."""
        return all(
            monomial == ((name, 1),) or name not in Expr(((monomial, coefficient),)).symbols
            for monomial, coefficient in self.terms
        )

    def solve(self, name: str, total: int) -> int | None:
        """Return the integer ``name`` for which an expression ``a*name + b`` equals ``total``.

        None if the expression has another form, or if there is no such integer.
        """
        factor = constant = 0
        for monomial, coefficient in self.terms:
            if monomial == ((name, 1),):
                factor = coefficient  # type: ignore[assignment]
            elif not monomial:
                constant = coefficient  # type: ignore[assignment]
            else:
                return None
        if not factor or (total - constant) % factor:
            return None
        return (total - constant) // factor

    def __add__(self, other: Number) -> Any:
        return total((self, other))

    __radd__ = __add__

    def __sub__(self, other: Number) -> Any:
        return total((self, other * -1))

    def __rsub__(self, other: Number) -> Any:
        return total((other, self * -1))

    def __mul__(self, other: Number) -> Any:
        return _multiply(self, other)

    __rmul__ = __mul__

    def __floordiv__(self, other: Number) -> Any:
        return call("floordiv", self, other)

    def __mod__(self, other: Number) -> Any:
        return call("mod", self, other)

    def __str__(self) -> str:
        text = ""
        for monomial, coefficient in self.terms:
            term = _format_term(monomial, abs(coefficient))
            text += f"-{term}" if coefficient < 0 else f"+{term}" if text else term
        return text

    __repr__ = __str__


# A size or stride of a tensor.
Dim: TypeAlias = "int | Expr"
Number: TypeAlias = "int | float | Expr"


def symbol(name: str) -> Expr:
    """Return the expression of the symbol ``name``.

    Raises:
        GraphError: ``name`` is not an identifier, or the name of a function.
    """
    if not is_symbol_name(name):
        raise GraphError(f"{name!r} cannot be the name of a symbol", fix="use an identifier such as 's0'")
    return Expr(((((name, 1),), 1),))


def is_symbol_name(name: str) -> bool:
    """Return whether a symbol can have this name: an ASCII identifier that is not a function's name."""
    return SYMBOL_NAME.fullmatch(name) is not None and name not in FUNCTIONS


def symbols_in(numbers: Iterable[object]) -> set[str]:
    """Return the names of the symbols in any of these sizes."""
    names: set[str] = set()
    for number in numbers:
        if isinstance(number, Expr):
            names |= number.symbols
    return names


def substitute_symbols(number: Any, values: Mapping[str, Dim]) -> Any:
    """Return a number, expression or None with symbols replaced."""
    return number.substitute(values) if isinstance(number, Expr) else number


def call(function: str, *arguments: Number) -> Any:
    """Return ``function`` applied to these arguments, simplified.

    Raises:
        GraphError: There is no such function, it takes another number of arguments, or a power is too large
            or not real.
        ArithmeticError: The function is undefined for these numbers.
    """
    _require_callable(function, arguments)
    definition = FUNCTIONS[function]
    if definition.merges_arguments:
        arguments = _normalize_arguments(function, arguments)
        if len(arguments) == 1:
            return arguments[0]
    if not any(isinstance(argument, Expr) for argument in arguments):
        return value_of(function, arguments)
    if definition.rounds and is_integral(arguments[0]):
        return arguments[0]
    if function in ("floordiv", "mod"):  # (4*s0+2)//2 is 2*s0+1, and mod(4*s0+2, 2) is 0
        exact = _divide_exactly(arguments[0], arguments[1])
        if exact is not None:
            return exact if function == "floordiv" else 0
    if function == "pow" and isinstance(arguments[1], int) and _is_expanded(arguments[0], arguments[1]):
        return reduce(operator.mul, [arguments[0]] * arguments[1], 1)
    return Expr(((((Call(function, tuple(arguments)), 1),), 1),))


def _require_callable(function: str, arguments: tuple[Number, ...]) -> None:
    if function not in FUNCTIONS:
        raise GraphError(
            f"{function!r} is not a function of expressions", fix=f"use one of {', '.join(FUNCTIONS)}"
        )
    definition = FUNCTIONS[function]
    if not arguments or (definition.arity is not None and len(arguments) != definition.arity):
        raise GraphError(
            f"{function} takes {definition.arity or 'one or more'} arguments, got {len(arguments)}"
        )
    if definition.requires_integers and not all(map(is_integral, arguments)):
        raise GraphError(f"{function} is a function of integers, not of {', '.join(map(str, arguments))}")
    if function == "pow" and not isinstance(arguments[1], Expr) and abs(arguments[1]) > _MAX_EXPONENT:
        raise GraphError(f"a power of {arguments[1]} is too large: at most {_MAX_EXPONENT}")


def _is_expanded(base: Number, exponent: int) -> bool:
    """Return whether a power is expanded: of a single term always, of a sum only if the exponent is low."""
    return 0 <= exponent <= (_MAX_EXPONENT if len(_terms(base)) == 1 else _MAX_EXPANDED_EXPONENT)


def is_integral(number: object) -> bool:
    """Return whether an expression is integer-valued by its form: no floats, roots or true divisions."""
    if not isinstance(number, Expr):
        return isinstance(number, int)
    return all(
        isinstance(coefficient, int) and all(_is_integral_factor(factor) for factor, _ in monomial)
        for monomial, coefficient in number.terms
    )


def _is_integral_factor(factor: Factor) -> bool:
    if isinstance(factor, str):
        return True
    whole = FUNCTIONS[factor.function].integrality
    return whole is Integrality.ALWAYS or (
        whole is Integrality.FOR_INTEGERS and all(map(is_integral, factor.arguments))
    )


def _divide_exactly(number: Number, divisor: Number) -> Number | None:
    """Return ``number`` divided by a common divisor of its coefficients, or by itself; else None."""
    # Exact for all values of the symbols, x // x at x = 0 aside; no general polynomial division.
    if number == divisor and isinstance(number, Expr):
        return 1
    if not isinstance(number, Expr) or not is_integral(number) or type(divisor) is not int or divisor == 0:
        return None
    if any(type(coefficient) is not int or coefficient % divisor for _, coefficient in number.terms):
        return None
    return _normalize({monomial: coefficient // divisor for monomial, coefficient in number.terms})


def _normalize_arguments(function: str, arguments: tuple[Number, ...]) -> tuple[Number, ...]:
    """Return the normal form of the arguments of a maximum or minimum.

    Nested calls are flattened, numbers folded into one, and expressions deduplicated and sorted.
    """
    flat: list[Number] = []
    for argument in arguments:
        inner = _call_of(argument)
        flat += inner.arguments if inner is not None and inner.function == function else [argument]
    numbers = [item for item in flat if not isinstance(item, Expr)]
    rest = sorted({item for item in flat if isinstance(item, Expr)}, key=str)
    return (*([value_of(function, tuple(numbers))] if numbers else []), *rest)


def _call_of(number: Number) -> Call | None:
    if not isinstance(number, Expr) or len(number.terms) != 1:
        return None
    monomial, coefficient = number.terms[0]
    is_plain = coefficient == 1 and len(monomial) == 1 and monomial[0][1] == 1
    return monomial[0][0] if is_plain and isinstance(monomial[0][0], Call) else None


def _terms(number: Number) -> Sequence[tuple[Monomial, int | float]]:
    return number.terms if isinstance(number, Expr) else (((), number),)


def total(numbers: Iterable[Number]) -> Any:
    """Return the sum of these numbers."""
    coefficients: dict[Monomial, int | float] = {}
    for number in numbers:
        for monomial, coefficient in _terms(number):
            coefficients[monomial] = coefficients.get(monomial, 0) + coefficient
    return _normalize(coefficients)


def _multiply(left: Number, right: Number) -> Number:
    if len(_terms(left)) * len(_terms(right)) > _MAX_TERMS:
        raise GraphError(f"an expression is too large: a product of more than {_MAX_TERMS} terms")
    # Every term by every term; powers of equal factors are added, and coefficients of equal monomials.
    total: dict[Monomial, int | float] = {}
    for left_monomial, left_coefficient in _terms(left):
        for right_monomial, right_coefficient in _terms(right):
            powers: dict[Factor, int] = dict(left_monomial)
            for factor, power in right_monomial:
                powers[factor] = powers.get(factor, 0) + power
            monomial = tuple(sorted(powers.items(), key=lambda item: str(item[0])))
            total[monomial] = total.get(monomial, 0) + left_coefficient * right_coefficient
    return _normalize(total)


def _normalize(total: Mapping[Monomial, int | float]) -> Number:
    """Return a sum in normal form: no zero terms, and integers for whole coefficients."""
    terms: list[tuple[Monomial, int | float]] = [
        (monomial, require_bounded(_int_if_integral(coefficient)))
        for monomial, coefficient in total.items()
        if coefficient
    ]
    if not terms:
        return 0
    if len(terms) == 1 and not terms[0][0]:
        return terms[0][1]
    # By decreasing degree, then by text: a total order, so that equal polynomials are equal tuples.
    terms.sort(key=lambda term: (-sum(power for _, power in term[0]), _format_term(term[0], 1)))
    return Expr(tuple(terms))


def _int_if_integral(number: int | float) -> int | float:
    return int(number) if isinstance(number, float) and number.is_integer() else number


def _substitute_in_term(coefficient: int | float, monomial: Monomial, values: Mapping[str, Dim]) -> Number:
    """Return a term with symbols replaced; calls are simplified again."""
    product: Number = coefficient
    for factor, power in monomial:
        if isinstance(factor, str):
            value: Number = values[factor] if factor in values else symbol(factor)
        else:
            value = call(factor.function, *(substitute_symbols(part, values) for part in factor.arguments))
        for _ in range(power):
            product = product * value
    return product


def _format_values(values: Mapping[str, Dim], expr: Expr) -> str:
    return ", ".join(f"{name} = {values[name]}" for name in sorted(expr.symbols) if name in values)


def _format_term(monomial: Monomial, coefficient: int | float) -> str:
    factors = [
        _format_factor(factor, power, bool(len(monomial) > 1 or coefficient != 1))
        for factor, power in monomial
    ]
    return "*".join(factors if coefficient == 1 and factors else [str(coefficient), *factors])


def _format_factor(factor: Factor, power: int, is_part: bool) -> str:
    text = str(factor)
    if isinstance(factor, Call) and FUNCTIONS[factor.function].infix and (is_part or power > 1):
        text = f"({text})"
    return f"{text}**{power}" if power > 1 else text


def _format_operand(number: Number) -> str:
    """Return an operand of a division: in parentheses unless it is a number or a symbol."""
    is_simple = not isinstance(number, Expr) or number.symbol is not None
    return str(number) if is_simple and not str(number).startswith("-") else f"({number})"
