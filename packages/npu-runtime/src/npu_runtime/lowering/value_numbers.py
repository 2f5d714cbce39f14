"""Deterministic numbers for values in dumps: values of the graph (``v000``), followed by temporaries."""

from __future__ import annotations

from collections.abc import Iterable

from npu_ir import Graph, TensorType, Value
from npu_ir.core.types import Type, dtype_name
from npu_ir.plugins.backend import Operand, Temporary


class ValueNumbers:
    """Numbers of the values of a graph in its own order, then of temporaries.

    Unlike ids of values, they do not depend on how the graph was edited.

    Args:
        graph: Its arguments are numbered first, then the outputs of its nodes.
        temporaries: In the order in which they are computed.
    """

    def __init__(self, graph: Graph, temporaries: Iterable[Temporary] = ()) -> None:
        everything: list[Operand] = [*graph.values, *temporaries]
        self._numbers = {item: index for index, item in enumerate(everything)}

    def number_of(self, item: Operand) -> int:
        """Return the number of a value."""
        return self._numbers[item]

    def label(self, item: Operand) -> str:
        """Return the label of a value: ``v000``."""
        return f"v{self._numbers[item]:03d}"

    def tuple_text(self, items: Iterable[Operand]) -> str:
        """Return the numbers of several values as text: ``(0, 1)``."""
        return f"({', '.join(str(self._numbers[item]) for item in items)})"


def type_text(type: Type) -> str:
    """Return ``shape=(64, 8) dtype=f32``, with strides unless contiguous; ``number=float`` for a scalar."""
    if not isinstance(type, TensorType):
        return f"number={type}"
    parts = [f"shape={_tuple_text(type.shape)}", f"dtype={dtype_name(type.dtype)}"]
    if type.strides is not None:
        parts.append(f"strides={_tuple_text(type.strides)}")
    return " ".join(parts)


def argument_role(value: Value) -> str:
    """Return the role of an argument: ``param``, ``buffer``, ``state``, ``input``, ``const``; else ""."""
    return "" if value.argument is None else str(value.argument.kind.value)


def _tuple_text(items: Iterable[object]) -> str:
    parts = list(map(str, items))
    return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"
