"""The functions in expressions of sizes, and their evaluation on numbers."""

from __future__ import annotations

import enum
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from npu_ir.errors import GraphError

_MAX_BITS = 4096  # Python does not format integers of more than 4300 digits


class Integrality(enum.Enum):
    """The condition under which a function returns an integer."""

    ALWAYS = enum.auto()
    FOR_INTEGERS = enum.auto()  # where all its arguments are integers
    NEVER = enum.auto()


@dataclass(frozen=True, slots=True)
class SizeFunction:
    """One function of sizes, with the properties that simplification uses."""

    evaluate: Callable[..., Any]  # its implementation on numbers
    arity: int | None  # the number of arguments; None for one or more
    integrality: Integrality  # the condition under which it returns an integer
    infix: str | None = None  # its operator between the arguments; None if written ``name(a, b)``
    rounds: bool = False  # whether it returns its only argument whenever that is an integer
    merges_arguments: bool = False  # whether it is commutative, associative and idempotent
    requires_integers: bool = False  # whether it is defined for integers only


def _make_rounding(evaluate: Callable[..., Any]) -> SizeFunction:
    return SizeFunction(evaluate, 1, Integrality.ALWAYS, rounds=True)


def _make_bitwise(evaluate: Callable[..., Any]) -> SizeFunction:
    return SizeFunction(evaluate, 2, Integrality.ALWAYS, requires_integers=True)


FUNCTIONS: Mapping[str, SizeFunction] = {
    "floordiv": SizeFunction(operator.floordiv, 2, Integrality.FOR_INTEGERS, infix="//"),
    "truediv": SizeFunction(operator.truediv, 2, Integrality.NEVER, infix="/"),
    "mod": SizeFunction(operator.mod, 2, Integrality.FOR_INTEGERS),
    "pow": SizeFunction(operator.pow, 2, Integrality.FOR_INTEGERS),
    "max": SizeFunction(lambda *items: max(items), None, Integrality.FOR_INTEGERS, merges_arguments=True),
    "min": SizeFunction(lambda *items: min(items), None, Integrality.FOR_INTEGERS, merges_arguments=True),
    "trunc": _make_rounding(math.trunc),
    "floor": _make_rounding(math.floor),
    "ceil": _make_rounding(math.ceil),
    "round": _make_rounding(round),
    "round_to": SizeFunction(round, 2, Integrality.NEVER),
    "bitand": _make_bitwise(operator.and_),
    "bitor": _make_bitwise(operator.or_),
    "bitxor": _make_bitwise(operator.xor),
    "lshift": _make_bitwise(operator.lshift),
    "rshift": _make_bitwise(operator.rshift),
    "sqrt": SizeFunction(math.sqrt, 1, Integrality.NEVER),
}


def value_of(function: str, arguments: tuple[Any, ...]) -> int | float:
    """Return the value of a function of numbers.

    Raises:
        GraphError: It would have too many digits to format, or is not a real number.
        ArithmeticError: It is undefined.
    """
    # The size of the result is bounded before it is computed: a huge power would exhaust time and memory.
    first, *rest = arguments
    bits = first.bit_length() if isinstance(first, int) else 1
    if function == "pow":
        bits *= max(int(rest[0]), 1)
    elif function == "lshift":
        bits += int(rest[0])
    if bits > _MAX_BITS:
        raise GraphError(f"a number of more than {_MAX_BITS} bits in an expression is too large")
    result = FUNCTIONS[function].evaluate(*arguments)
    if isinstance(result, complex):
        raise GraphError(f"{function}({', '.join(map(str, arguments))}) is not a real number")
    value: int | float = require_bounded(result)
    return value


def require_bounded(number: Any) -> Any:
    """Return a number, or an expression, unchanged.

    Raises:
        GraphError: It is an integer of too many digits for Python to format, or is infinite or nan.
    """
    if isinstance(number, int) and number.bit_length() > _MAX_BITS:
        raise GraphError(f"a number of more than {_MAX_BITS} bits in an expression is too large")
    if isinstance(number, float) and not math.isfinite(number):
        raise GraphError(f"{number} in an expression is too large a number")
    return number
