"""Rows of a comparison before their values are compared."""

from __future__ import annotations

from typing import Any

from npu_ir import TensorType, Value
from npu_ir.core.node import NO_PROVENANCE
from npu_runtime.diagnostics.compare.metrics import UNKNOWN
from npu_runtime.diagnostics.compare.row import Row
from npu_runtime.diagnostics.compare.verdicts import SideValue


def make_row(kind: str, name: str, a: Any, b: Any, side: SideValue | None, problem: str | None = None) -> Row:
    """Return a row for two values or literals, without a difference; its type is that of side a."""
    mine, others = (leaf.producer if isinstance(leaf, Value) else None for leaf in (a, b))
    origin = next((node.provenance for node in (mine, others) if node is not None), NO_PROVENANCE)
    return Row(
        kind=kind,
        name=name,
        counterpart=b.name if isinstance(b, Value) else "",
        op="" if mine is None else mine.op_type,
        counterpart_op="" if others is None else others.op_type,
        module=origin.module,
        source=origin.source,
        type="" if side is None else _type_text(side),
        difference=UNKNOWN,
        problem=problem,
    )


def have_same_strides(a: Any, b: Any) -> bool:
    """Return whether the same op computes both, and both graphs declare the same strides."""
    if not (isinstance(a, Value) and isinstance(b, Value)) or a.producer is None or b.producer is None:
        return False
    if not (isinstance(a.type, TensorType) and isinstance(b.type, TensorType)):
        return False
    return a.producer.op_type == b.producer.op_type and a.type.strides == b.type.strides


def _type_text(side: SideValue) -> str:
    return side.item.__class__.__name__ if side.type is None else str(side.type)
