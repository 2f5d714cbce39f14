"""Lowered graphs as text and as plain data, and what dumps of graphs share with them: numbers of values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from npu_ir import Graph, OpNode, TensorType, Value
from npu_ir.core.literals import format_literal, literal_to_json
from npu_ir.core.types import Type, dtype_name
from npu_ir.plugins.backend import BackendOp, Operand, Temporary
from npu_ir.serial.value_json import type_to_json
from npu_runtime.backends.partition import ATEN

if TYPE_CHECKING:
    from npu_runtime.lowering.lowered_graph import LoweredGraph, LoweredOp


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

    def of(self, items: Iterable[Operand]) -> list[int]:
        """Return the numbers of several values."""
        return [self._numbers[item] for item in items]

    def label(self, item: Operand) -> str:
        """Return the label of a value: ``v000``."""
        return f"v{self._numbers[item]:03d}"

    def flow_text(self, inputs: Iterable[Operand], outputs: Iterable[Operand]) -> str:
        """Return the numbers of operands and results as text: ``(0, 1) -> (2)``."""
        texts = (f"({', '.join(map(str, self.of(items)))})" for items in (inputs, outputs))
        return " -> ".join(texts)

    def record(self, item: Operand) -> dict[str, Any]:
        """Return number, name, type and role of a value as plain data."""
        record = {"id": self._numbers[item], "name": item.name, "type": type_to_json(item.type)}
        if isinstance(item, Value) and item.argument is not None:
            record.update(role=str(item.argument.kind.value), target=item.argument.target)
        return record


def type_text(type: Type) -> str:
    """Return ``shape=(64, 8) dtype=f32``, with strides unless contiguous; ``number=float`` for a scalar."""
    if not isinstance(type, TensorType):
        return f"number={type}"
    parts = [f"shape={_tuple_text(type.shape)}", f"dtype={dtype_name(type.dtype)}"]
    if type.strides is not None:
        parts.append(f"strides={_tuple_text(type.strides)}")
    return " ".join(parts)


def _tuple_text(items: Iterable[object]) -> str:
    parts = list(map(str, items))
    return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"


def literal_attrs_text(node: OpNode) -> str:
    """Return the attributes of a node as literals in braces."""
    return f"{{{', '.join(f'{name}={format_literal(item)}' for name, item in node.attrs.items())}}}"


def literal_attrs_record(node: OpNode) -> dict[str, Any]:
    """Return the attributes of a node as plain data."""
    return {name: literal_to_json(item) for name, item in node.attrs.items()}


def schema_name(schema_id: int) -> str:
    """Return the four ASCII letters that an id encodes, the first in its lowest byte; hex if it encodes none.

    The id 0 means no schema and returns "".

    Source: kernels define their ids so, ``int.from_bytes(b"GEMM", "little")``.
    """
    if not schema_id:
        return ""
    if not 0 <= schema_id < 1 << 32:
        return hex(schema_id)
    letters = schema_id.to_bytes(4, "little")
    is_text = all(0x20 < letter < 0x7F for letter in letters)
    return letters.decode("ascii") if is_text else hex(schema_id)


def lowered_text(lowered: LoweredGraph) -> str:
    """Return the ops of a lowered graph, one on each line, with the reasons of fallbacks to ATen."""
    return "\n".join(_lowered_lines(lowered))


def _lowered_lines(lowered: LoweredGraph) -> Iterator[str]:
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
    attrs = literal_attrs_text(op.nodes[0]) if item.backend == ATEN else f"{{{_packed_attrs_text(op)}}}"
    over = f" overwrites={tuple(numbers.of(op.overwrites))}" if op.overwrites else ""
    line = f"  #{index:03d} {op.kind} {numbers.flow_text(op.inputs, op.outputs)} {attrs}"
    return f"{line} kid={op.kernel or '-'} backend={item.backend}{over}"


def _packed_attrs_text(op: BackendOp) -> str:
    parts = [f"schema={schema_name(op.schema_id)}"] if op.schema_id else []
    return ", ".join([*parts, *([f"attrs={op.attrs.hex()}"] if op.attrs else [])])


def attrs_text(lowered: LoweredGraph) -> str:
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


def lowered_record(lowered: LoweredGraph) -> dict[str, Any]:
    """Return the partitions and the ops of a lowered graph as plain data, with values by their numbers."""
    numbers = ValueNumbers(lowered.graph, lowered.temporaries)
    partitions = [
        {
            "backend": item.partition.backend.name,
            "nodes": [node.name for node in item.partition.nodes],
            "seconds": item.partition.seconds,
        }
        for item in lowered.partitions
    ]
    return {
        "graph": lowered.graph.name,
        "backends": list(lowered.backends),
        "temporaries": [numbers.record(item) for item in lowered.temporaries],
        "once": [_op_record(numbers, item) for item in lowered.prologue],
        "partitions": partitions,
        "ops": [_op_record(numbers, item) for item in lowered.ops],
    }


def _op_record(numbers: ValueNumbers, item: LoweredOp) -> dict[str, Any]:
    record = {
        "kind": item.op.kind,
        "backend": item.backend,
        "kernel": item.op.kernel,
        "inputs": numbers.of(item.op.inputs),
        "outputs": numbers.of(item.op.outputs),
        "nodes": [node.name for node in item.op.nodes],
        "refusals": dict(item.refusals),
    }
    return {**record, "overwrites": numbers.of(item.op.overwrites)} if item.op.overwrites else record


def attrs_records(lowered: LoweredGraph) -> list[dict[str, Any]]:
    """Return the attributes of each op as plain data, in the order of the ops."""
    records = []
    for index, item in enumerate(lowered.ops):
        record: dict[str, Any] = {"op": index, "kind": item.op.kind}
        if item.backend == ATEN:
            record["attrs"] = literal_attrs_record(item.op.nodes[0])
        else:
            record.update(schema=schema_name(item.op.schema_id), schema_id=item.op.schema_id)
            record["bytes"] = item.op.attrs.hex()
        records.append(record)
    return records
