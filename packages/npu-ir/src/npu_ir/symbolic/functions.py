"""The functions in expressions of sizes, and their evaluation on numbers."""

from __future__ import annotations

import enum
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from npu_ir.errors import GraphError

_MOST_BITS = 4096  # Python does not format integers of more than 4300 digits


class Whole(enum.Enum):
    """The condition under which a function returns an integer."""

    ALWAYS = enum.auto()
    OF_WHOLE = enum.auto()  # where all its arguments are integers
    NEVER = enum.auto()


@dataclass(frozen=True, slots=True)
class SizeFunction:
    """One function of sizes, with the properties that simplification uses.

    Attributes:
        evaluate: Its implementation on numbers.
        arity: The number of arguments; None for one or more.
        whole: The condition under which it returns an integer.
        infix: Its operator between the arguments; None if written ``name(a, b)``.
        rounds: True if it returns its only argument whenever that is an integer.
        is_merged: True if it is commutative, associative and idempotent.
        of_integers: True if it is defined for integers only.
    """

    evaluate: Callable[..., Any]
    arity: int | None
    whole: Whole
    infix: str | None = None
    rounds: bool = False
    is_merged: bool = False
    of_integers: bool = False


def _rounding(evaluate: Callable[..., Any]) -> SizeFunction:
    return SizeFunction(evaluate, 1, Whole.ALWAYS, rounds=True)


def _of_bits(evaluate: Callable[..., Any]) -> SizeFunction:
    return SizeFunction(evaluate, 2, Whole.ALWAYS, of_integers=True)


FUNCTIONS: Mapping[str, SizeFunction] = {
    "floordiv": SizeFunction(operator.floordiv, 2, Whole.OF_WHOLE, infix="//"),
    "truediv": SizeFunction(operator.truediv, 2, Whole.NEVER, infix="/"),
    "mod": SizeFunction(operator.mod, 2, Whole.OF_WHOLE),
    "pow": SizeFunction(operator.pow, 2, Whole.OF_WHOLE),
    "max": SizeFunction(lambda *items: max(items), None, Whole.OF_WHOLE, is_merged=True),
    "min": SizeFunction(lambda *items: min(items), None, Whole.OF_WHOLE, is_merged=True),
    "trunc": _rounding(math.trunc),
    "floor": _rounding(math.floor),
    "ceil": _rounding(math.ceil),
    "round": _rounding(round),
    "round_to": SizeFunction(round, 2, Whole.NEVER),
    "bitand": _of_bits(operator.and_),
    "bitor": _of_bits(operator.or_),
    "bitxor": _of_bits(operator.xor),
    "lshift": _of_bits(operator.lshift),
    "rshift": _of_bits(operator.rshift),
    "sqrt": SizeFunction(math.sqrt, 1, Whole.NEVER),
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
    if bits > _MOST_BITS:
        raise GraphError(f"a number of more than {_MOST_BITS} bits in an expression is too large")
    result = FUNCTIONS[function].evaluate(*arguments)
    if isinstance(result, complex):
        raise GraphError(f"{function}({', '.join(map(str, arguments))}) is not a real number")
    value: int | float = bounded(result)
    return value


def bounded(number: Any) -> Any:
    """Return a number, or an expression, unchanged.

    Raises:
        GraphError: It is an integer of too many digits for Python to format, or is infinite or nan.
    """
    if isinstance(number, int) and number.bit_length() > _MOST_BITS:
        raise GraphError(f"a number of more than {_MOST_BITS} bits in an expression is too large")
    if isinstance(number, float) and not math.isfinite(number):
        raise GraphError(f"{number} in an expression is too large a number")
    return number
