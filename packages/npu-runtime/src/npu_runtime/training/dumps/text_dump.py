"""Dumps of a captured step as text: a line for each value, op and call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from npu_ir import Graph, OpNode, Value
from npu_ir.core.literals import format_literal
from npu_runtime.lowering.aten_calls import ATEN
from npu_runtime.lowering.lowered_graph import Lowered, LoweredOp
from npu_runtime.lowering.numbering import Numbers, role_of, type_text
from npu_runtime.lowering.schema_names import schema_name
from npu_runtime.training.dumps.call_log import Call, Trace


def graph_text(graph: Graph) -> str:
    """Return values, nodes, results and updates of a graph as text."""
    return "\n".join(_graph_lines(graph))


def _graph_lines(graph: Graph) -> Iterator[str]:
    numbers = Numbers(graph)
    counts = f"{len(graph.values)} values, {len(graph)} nodes, {len(graph.updates)} updates"
    yield f"graph {graph.name!r}: {counts}"
    yield "values"
    for value in graph.values:
        yield _joined(f"  {numbers.label(value)}  {value.name}  {type_text(value.type)}", role_of(value))
    yield "nodes"
    for index, node in enumerate(graph.nodes):
        once = "once" if node.in_prologue else ""
        line = f"  #{index:03d} {node.op_type} {_ends(numbers, node)} {_attrs(node)}"
        yield _joined(line, once, _place(node))
    yield "results"
    for leaf in graph.results[1]:
        yield (
            f"  {numbers.label(leaf)}  {leaf.name}"
            if isinstance(leaf, Value)
            else f"  {format_literal(leaf)}"
        )
    yield "updates"
    for target, value in graph.updates.items():
        yield f"  {numbers.label(target)} <- {numbers.label(value)}  {target.name}"


def _ends(numbers: Numbers, node: OpNode) -> str:
    return f"{numbers.listed(node.inputs)} -> {numbers.listed(node.outputs)}"


def _attrs(node: OpNode) -> str:
    return f"{{{', '.join(f'{name}={format_literal(item)}' for name, item in node.attrs.items())}}}"


def _place(node: OpNode) -> str:
    text = str(node.provenance)
    return f"[{text if text.isprintable() else repr(text)}]" if text else ""


def _joined(*parts: str) -> str:
    return "  ".join(filter(None, parts))


def lowered_text(lowered: Lowered) -> str:
    """Return the ops of a lowered graph, one on each line, with the reasons of fallbacks to ATen."""
    return "\n".join(_lowered_lines(lowered))


def _lowered_lines(lowered: Lowered) -> Iterator[str]:
    numbers = Numbers(lowered.graph, lowered.temporaries)
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


def _op_line(numbers: Numbers, index: int, item: LoweredOp) -> str:
    op = item.op
    attrs = _attrs(op.nodes[0]) if item.backend == ATEN else f"{{{_packed(item)}}}"
    line = f"  #{index:03d} {op.kind} {numbers.listed(op.inputs)} -> {numbers.listed(op.outputs)} {attrs}"
    return f"{line} kid={op.kernel or '-'} backend={item.backend}"


def _packed(item: LoweredOp) -> str:
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


def trace_text(trace: Trace) -> str:
    """Return the calls of a call log, one on each line."""
    lines = [f"trace of {trace.graph!r}: {len(trace.calls)} calls"]
    return "\n".join(lines + [_call_line(index, call) for index, call in enumerate(trace.calls)])


def _call_line(index: int, call: Call) -> str:
    nodes = f"  <- {', '.join(call.nodes)}" if call.nodes else ""
    kinds = " ".join(call.kinds) or "-"
    return f"  #{index:03d} {call.phase:<7} {kinds} kid={call.kernel} backend={call.backend}{nodes}"
