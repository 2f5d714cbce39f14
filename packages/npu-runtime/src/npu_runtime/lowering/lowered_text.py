"""Lowered graphs as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from npu_ir import OpNode
from npu_ir.core.literals import format_literal
from npu_runtime.lowering.aten_calls import ATEN
from npu_runtime.lowering.numbering import ValueNumbers, type_text
from npu_runtime.lowering.schema_names import schema_name

if TYPE_CHECKING:
    from npu_runtime.lowering.lowered_graph import Lowered, LoweredOp


def lowered_text(lowered: Lowered) -> str:
    """Return the ops of a lowered graph, one on each line, with the reasons of fallbacks to ATen."""
    return "\n".join(_lowered_lines(lowered))


def _lowered_lines(lowered: Lowered) -> Iterator[str]:
    numbers = ValueNumbers(lowered.graph, lowered.temporaries)
    counts = Counter(item.backend for item in lowered.ops)
    shares = ", ".join(f"{counts[name]} of {name}" for name in lowered.backends)
    yield f"lowered {lowered.graph.name!r}: {len(lowered.ops)} ops, {shares}"
    if lowered.temporaries:
        yield "temporaries"
        for item in lowered.temporaries:
            yield f"  {numbers.label(item)}  {item.name}  {type_text(item.type)}"
    if lowered.prologue:
        yield "once"
        for index, op in enumerate(lowered.prologue):
            yield _op_line(numbers, index, op)
    yield "ops"
    for index, op in enumerate(lowered.ops):
        yield _op_line(numbers, index, op)
    reasons = Counter((name, reason) for item in lowered.fallbacks for name, reason in item.refusals.items())
    if reasons:
        yield "fell back"
        for (name, reason), count in reasons.items():
            yield f"  {count} x {name}: {reason}"


def _op_line(numbers: ValueNumbers, index: int, item: LoweredOp) -> str:
    op = item.op
    attrs = literal_attrs_text(op.nodes[0]) if item.backend == ATEN else f"{{{_packed_attrs_text(item)}}}"
    operands = f"{numbers.tuple_text(op.inputs)} -> {numbers.tuple_text(op.outputs)}"
    line = f"  #{index:03d} {op.kind} {operands} {attrs}"
    return f"{line} kid={op.kernel or '-'} backend={item.backend}"


def _packed_attrs_text(item: LoweredOp) -> str:
    schema = schema_name(item.op.schema_id)
    return ", ".join(
        filter(
            None,
            (f"schema={schema}" if schema else "", f"attrs={item.op.attrs.hex()}" if item.op.attrs else ""),
        )
    )


def attrs_text(lowered: Lowered) -> str:
    """Return the attributes of each op as text: packed ones as bytes, those of ATen as literals."""
    lines = [f"attributes of {lowered.graph.name!r}: {len(lowered.ops)} ops"]
    for index, item in enumerate(lowered.ops):
        lines.append(f"  #{index:03d} {item.op.kind}")
        if item.backend == ATEN:
            attrs = item.op.nodes[0].attrs.items()
            lines += [f"       {name}={format_literal(value)}" for name, value in attrs]
        elif item.op.attrs:
            schema = schema_name(item.op.schema_id) or "the op's own"
            lines.append(f"       schema={schema} attrs={item.op.attrs.hex(' ')}")
    return "\n".join(lines)


def literal_attrs_text(node: OpNode) -> str:
    """Return the attributes of a node as literals in braces."""
    return f"{{{', '.join(f'{name}={format_literal(item)}' for name, item in node.attrs.items())}}}"
