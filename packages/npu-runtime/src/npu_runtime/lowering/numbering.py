"""Numbers for what a dump shows: values ``v000`` and temporaries behind them, in an order that never changes."""

from __future__ import annotations

from collections.abc import Iterable

from npu_ir import Graph, TensorType, Value
from npu_ir.core.types import Type, dtype_name
from npu_ir.plugins.backend import Operand, Temporary


class Numbers:
    """Numbers values of a graph in its own order, then temporaries; ids of values would tell how it was edited.

    Args:
        graph: Its arguments come first, then what its nodes make.
        temporaries: In the order in which they are made.
    """

    def __init__(self, graph: Graph, temporaries: Iterable[Temporary] = ()) -> None:
        everything: list[Operand] = [*graph.values, *temporaries]
        self._numbers = {item: index for index, item in enumerate(everything)}

    def of(self, item: Operand) -> int:
        """Return the number of a value."""
        return self._numbers[item]

    def label(self, item: Operand) -> str:
        """Return the number of a value as the lists of values show it."""
        return f"v{self._numbers[item]:03d}"

    def listed(self, items: Iterable[Operand]) -> str:
        """Return values as an op shows them: ``(0, 1)``."""
        return f"({', '.join(str(self._numbers[item]) for item in items)})"


def type_text(type: Type) -> str:
    """Return ``shape=(64, 8) dtype=f32``, with strides where the tensor is not contiguous; ``float`` of a number."""
    if not isinstance(type, TensorType):
        return f"number={type}"
    parts = [f"shape={_tuple_text(type.shape)}", f"dtype={dtype_name(type.dtype)}"]
    if type.strides is not None:
        parts.append(f"strides={_tuple_text(type.strides)}")
    return " ".join(parts)


def role_of(value: Value) -> str:
    """Return what a value from outside is: ``param``, ``buffer``, ``state``, ``input`` or ``const``."""
    return "" if value.argument is None else str(value.argument.kind.value)


def _tuple_text(items: Iterable[object]) -> str:
    parts = list(map(str, items))
    return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"
