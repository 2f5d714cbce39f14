"""Type promotion by the default dtype of the process: division, roots and means of integers.

Graphs run under the default dtype float32. If a model is captured under another one, the operands of such
an op are cast first, so that it returns the same dtype under float32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import Node

from npu_ir._torch.fake import trial
from npu_ir._torch.ops import OpOverload
from npu_ir._torch.pytree import tree_leaves
from npu_ir.capture.provenance import location_of
from npu_ir.core.default_dtype import float32_by_default
from npu_ir.core.types import TensorType, Type
from npu_ir.errors import ConversionError

_DEFAULTS = (torch.float32, torch.complex64)


def needed_cast(node: Node, op: OpOverload, types: Sequence[Type]) -> torch.dtype | None:
    """Return the dtype to cast the operands of ``node`` to; None if they need no cast.

    Raises:
        ConversionError: A cast of the operands does not help.
    """
    wanted = [item.dtype for item in types if isinstance(item, TensorType) and _is_inexact(item.dtype)]
    operands = _operand_tensors(node)
    if not operands or all(dtype in _DEFAULTS for dtype in wanted):
        return None
    if any(_is_inexact(operand.dtype) for operand in operands):
        return None
    if _result_dtypes(node, op, lambda tensor: tensor) == wanted:
        return None
    if _result_dtypes(node, op, lambda tensor: tensor.to(wanted[0])) == wanted:
        return wanted[0]
    raise ConversionError(
        f"{op} gives {wanted[0]} here because that is the default dtype of this process",
        where=location_of(node),
        fix="cast its operands (x.to(...)), or capture the model under float32: "
        "torch.set_default_dtype(torch.float32)",
    )


def _operand_tensors(node: Node) -> list[torch.Tensor]:
    """Return the FakeTensors that ``node`` reads; symbolic numbers have no dtype to cast."""
    values = (item.meta["val"] for item in node.all_input_nodes)
    return [value for value in values if isinstance(value, torch.Tensor)]


def _is_inexact(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point or dtype.is_complex


def _result_dtypes(
    node: Node, op: OpOverload, prepared: Callable[[torch.Tensor], torch.Tensor]
) -> list[torch.dtype]:
    """Return the floating-point result dtypes of ``op`` under float32 on prepared operands of ``node``."""

    def operand(item: Node) -> Any:
        value = item.meta["val"]
        return prepared(value) if isinstance(value, torch.Tensor) else value

    with trial(_operand_tensors(node)), float32_by_default():
        args, kwargs = torch.fx.map_arg((node.args, node.kwargs), operand)
        try:
            result: Any = op(*args, **kwargs)
        except (RuntimeError, TypeError):  # the op does not accept the cast operands
            return []
    return [
        leaf.dtype
        for leaf in tree_leaves(result)
        if isinstance(leaf, torch.Tensor) and _is_inexact(leaf.dtype)
    ]
