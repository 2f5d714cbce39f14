"""The registry of conversions and executors for ops without a PyTorch schema.

An entry matches exactly the op that it names, never another overload. ATen ops and ``torch.library``
custom ops need no entry: their schema suffices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from npu_ir.errors import RegistryError

if TYPE_CHECKING:
    import torch

    from npu_ir.capture.convert import Converter
    from npu_ir.core.node import Value

# Called with the inputs and attrs of a node, and if it owns regions, with functions that run them, by
# argument. Returns the outputs, always as a list.
Executor: TypeAlias = Callable[..., "list[Any]"]
# Called with the converter and the FX node; inserts nodes, and returns the value or values of the FX node.
Conversion: TypeAlias = "Callable[[Converter, torch.fx.Node], Value | Sequence[Value]]"

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Entry:
    """A registered function and the origin of its registration."""

    function: Callable[..., Any]
    origin: str


@dataclass(slots=True)
class OpRegistry:
    """Conversions and executors by op type."""

    origin: str = ""  # the origin of new entries; if empty, the module of the function
    _tables: dict[str, dict[str, Entry]] = field(default_factory=lambda: {"conversion": {}, "execution": {}})

    def register_executor(self, op_type: str) -> Callable[[F], F]:
        """Return a decorator that registers a function ``(inputs, attrs) -> list`` to run ``op_type``."""
        return self._decorator("execution", op_type)

    def register_conversion(self, op_type: str) -> Callable[[F], F]:
        """Return a decorator that registers a function ``(converter, fx_node)`` to convert ``op_type``."""
        return self._decorator("conversion", op_type)

    def _decorator(self, table: str, op_type: str) -> Callable[[F], F]:
        if not isinstance(op_type, str):
            raise RegistryError(
                f"an op type is a string, not {op_type!r}", fix='name the op: @register_executor("my_op")'
            )

        def register(function: F) -> F:
            if not callable(function):
                raise RegistryError(f"what is registered for {op_type} is not a function: {function!r}")
            self.add(table, op_type, Entry(function, self.origin or function.__module__))
            return function

        return register

    def add(self, table: str, op_type: str, entry: Entry) -> None:
        """Add an entry.

        Raises:
            RegistryError: The op already has one; names both origins.
        """
        existing = self._tables[table].get(op_type)
        if existing is not None:
            raise RegistryError(
                f"{op_type} already has a registered {table}: by {existing.origin}, "
                f"and now by {entry.origin}",
                fix="disable one of the plugins (NPU_DISABLE_PLUGINS), or unregister the first",
            )
        self._tables[table][op_type] = entry

    def remove(self, table: str, op_type: str) -> None:
        """Remove an entry; without one, raise RegistryError."""
        if self._tables[table].pop(op_type, None) is None:
            raise RegistryError(f"{op_type} has no registered {table}")

    def merge(self, other: OpRegistry) -> None:
        """Add all entries of ``other``, or none.

        Raises:
            RegistryError: An op of ``other`` already has an entry.
        """
        for table, entries in other._tables.items():
            for op_type in entries:
                if op_type in self._tables[table]:
                    self.add(table, op_type, entries[op_type])
        for table, entries in other._tables.items():
            self._tables[table].update(entries)

    def table(self, name: str) -> Mapping[str, Entry]:
        """Return the entries of ``conversion`` or ``execution`` by op type."""
        return MappingProxyType(self._tables[name])
