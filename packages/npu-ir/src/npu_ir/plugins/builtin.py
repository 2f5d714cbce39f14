"""The built-in plugin of npu-ir, registered through the same entry point as any other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from npu_ir.core.literals import Literal
from npu_ir.plugins.hookspecs import hookimpl
from npu_ir.plugins.op_registry import OpRegistry

GETITEM = "<built-in function getitem>"


def execute_getitem(inputs: Sequence[Any], attrs: Mapping[str, Literal]) -> list[Any]:
    """Return element ``attrs["index"]`` of the inputs, which are the elements of a tuple."""
    return [inputs[attrs["index"]]]


@hookimpl
def npu_register_ops(registry: OpRegistry) -> None:
    registry.register_executor(GETITEM)(execute_getitem)
