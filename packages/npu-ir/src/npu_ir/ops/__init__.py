"""Ops by their schemas: arguments, types of results, effects, execution; registration of what has no schema.

```python
from npu_ir.ops import register_executor

@register_executor("my_custom_op")
def execute_my_op(inputs, attrs):
    return [inputs[0] * attrs["scale"]]
```

In: a node, or an op and arguments. Out: bound calls, results, inferred types, effects. Open `schema.py`
first.
"""

from __future__ import annotations

from collections.abc import Callable

from npu_ir.plugins import plugin_manager
from npu_ir.plugins.op_registry import F


def register_executor(op_type: str) -> Callable[[F], F]:
    """Return a decorator that makes ``function(inputs, attrs) -> list`` run nodes of ``op_type``.

    It takes precedence over an operator of that name. For nodes that own regions it is called as
    ``function(inputs, attrs, regions)``: a mapping from argument to a function that runs the region.

    Raises:
        RegistryError: ``op_type`` already has an executor; names both.
    """
    return plugin_manager.registry().register_executor(op_type)


def register_conversion(op_type: str) -> Callable[[F], F]:
    """Return a decorator that makes ``function(converter, fx_node)`` convert FX nodes of ``op_type``.

    The function inserts nodes through ``converter`` and returns the value or values of the FX node.

    Raises:
        RegistryError: ``op_type`` already has a conversion; names both.
    """
    return plugin_manager.registry().register_conversion(op_type)


def unregister_executor(op_type: str) -> None:
    """Remove the executor of ``op_type``; without one, raise RegistryError."""
    plugin_manager.registry().remove("execution", op_type)


def unregister_conversion(op_type: str) -> None:
    """Remove the conversion of ``op_type``; without one, raise RegistryError."""
    plugin_manager.registry().remove("conversion", op_type)


def list_registered_ops() -> dict[str, list[str]]:
    """Return the registered op types: ``{"conversion": [...], "execution": [...]}``.

    All others are converted and executed by their schemas.
    """
    registry = plugin_manager.registry()
    return {table: sorted(registry.table(table)) for table in ("conversion", "execution")}


__all__ = [
    "list_registered_ops",
    "register_conversion",
    "register_executor",
    "unregister_conversion",
    "unregister_executor",
]
