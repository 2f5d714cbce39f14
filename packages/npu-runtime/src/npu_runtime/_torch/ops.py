"""Ops: overloads, composite ops, functional calls."""

from __future__ import annotations

from typing import Any

from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket

__all__ = ["HigherOrderOperator", "OpOverload", "OpOverloadPacket", "auto_functionalized_op"]


def auto_functionalized_op() -> Any:
    """Return the higher-order operator that runs a mutating op on copies: ``operator(op, **arguments)``.

    It returns the results of the op (None if it has none), then the copies that it wrote.
    """
    from torch._higher_order_ops.auto_functionalize import auto_functionalized

    return auto_functionalized
