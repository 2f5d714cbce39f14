"""Fake values: FakeTensors and symbolic numbers to run ops on when only the result types matter."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from npu_ir._torch.fake import FakeEnvironment
from npu_ir._torch.sizes import size_expression
from npu_ir.core.isolation import isolated_torch_state
from npu_ir.core.types import ScalarType, Type, contiguous_strides
from npu_ir.ops.torch_sizes import NotExpressibleError, from_sympy, to_symbolic, traced_type
from npu_ir.symbolic.constraints import Range
from npu_ir.symbolic.expressions import Dim, Expr, symbol

CPU = torch.device("cpu")
LARGE = 5003  # larger than the sizes at which ops switch their implementation


class FakeValues:
    """A factory of FakeTensors and symbolic numbers of given types, to run ops without data.

    ```python
    fakes = FakeValues({"s0": Range(1, 64)})
    with fakes.activate():
        result = torch.relu(fakes.fake_value(value.type))
        type = fakes.type_of(result)
    ```

    Args:
        ranges: The ranges of the symbols that may occur.
        near: The size by which PyTorch decides a branch if it must, as far as the ranges allow; None for a
            usual one, different for each symbol.
    """

    def __init__(self, ranges: Mapping[str, Range], near: int | None = None) -> None:
        self._environment: FakeEnvironment = FakeEnvironment() if ranges else _static_environment()
        # These example sizes, by symbol.
        self.examples = {
            name: nearest_value(known, (max(known.low or 0, 2) + 9 if near is None else near) + 2 * index)
            for index, (name, known) in enumerate(ranges.items())
        }
        self._values = {
            name: self._environment.symbolic_size(name, known.low, known.high, self.examples[name])
            for name, known in ranges.items()
        }
        self._symbols = {size_expression(value): symbol(name) for name, value in self._values.items()}

    @contextlib.contextmanager
    def activate(self) -> Iterator[None]:
        """Run ops on fake values as a graph runs them, isolated from global torch state."""
        with isolated_torch_state(CPU), self._environment.activate():
            yield

    @property
    def assumptions(self) -> str:
        """The guards of ops on symbolic sizes that their ranges do not imply, as text; "" for none."""
        return " and ".join(self._environment.assumptions)

    @property
    def assumes_bounds_only(self) -> bool:
        """True if every guard states that a size is below or above a bound, or not 0 or 1."""
        return self._environment.assumes_bounds_only

    def fake_value(self, type: Type) -> Any:
        """Return a FakeTensor or a number of this type, with symbolic numbers for symbols."""
        if isinstance(type, ScalarType):
            return self._number(type)
        shape = [to_symbolic(size, self._values) for size in type.shape]
        if type.layout is not torch.strided:
            return torch.empty(shape, dtype=type.dtype, layout=type.layout)
        strides = contiguous_strides(type.shape) if type.strides is None else type.strides
        steps = [to_symbolic(stride, self._values) for stride in strides]
        return self._environment.tensor(shape, steps, type.dtype)

    def _number(self, type: ScalarType) -> Any:
        if type.kind == "none":
            return None
        return (
            self._environment.unbacked_number(type.kind)
            if type.value is None
            else to_symbolic(type.value, self._values)
        )

    def type_of(self, result: Any) -> Type:
        """Return the type of a result; for a number that depends on data or unknown numbers only its kind.

        Raises:
            NotExpressibleError: The size of a tensor depends on data or unknown numbers.
        """
        try:
            type = traced_type(result, self._dim)
        except NotExpressibleError:
            if isinstance(result, torch.Tensor):
                raise
            return ScalarType("int")
        return ScalarType("int", result) if isinstance(result, int) and type == ScalarType("int") else type

    def _dim(self, size: Any) -> Dim:
        expression = size_expression(size)
        return expression if isinstance(expression, int) else from_sympy(expression, self._symbol)

    def _symbol(self, sympy_symbol: Any) -> Expr:
        if sympy_symbol not in self._symbols:
            raise NotExpressibleError("a size depends on data, or on a number that is not known")
        return self._symbols[sympy_symbol]


@functools.cache
def _static_environment() -> FakeEnvironment:
    """Return the shared environment of calls without symbolic sizes, which never record guards."""
    return FakeEnvironment()


def nearest_value(known: Range, wanted: int) -> int:
    """Return the possible value of a symbol that is nearest to ``wanted``."""
    raised = wanted if known.low is None else max(wanted, known.low)
    return raised if known.high is None else min(raised, known.high)
