"""Dumps of a captured step as text: a line for each value, op and call."""

from __future__ import annotations

from collections.abc import Iterator

from npu_ir import Graph, OpNode, Value
from npu_ir.core.literals import format_literal
from npu_runtime.lowering.lowered_text import literal_attrs_text
from npu_runtime.lowering.value_numbers import ValueNumbers, argument_role, type_text
from npu_runtime.training.dumps.call_log import Call, CallLog


def graph_text(graph: Graph) -> str:
    """Return values, nodes, results and updates of a graph as text."""
    return "\n".join(_graph_lines(graph))


def _graph_lines(graph: Graph) -> Iterator[str]:
    numbers = ValueNumbers(graph)
    counts = f"{len(graph.values)} values, {len(graph)} nodes, {len(graph.updates)} updates"
    yield f"graph {graph.name!r}: {counts}"
    yield "values"
    for value in graph.values:
        yield _join_nonempty(
            f"  {numbers.label(value)}  {value.name}  {type_text(value.type)}", argument_role(value)
        )
    yield "nodes"
    for index, node in enumerate(graph.nodes):
        once = "once" if node.in_prologue else ""
        line = f"  #{index:03d} {node.op_type} {_operands_text(numbers, node)} {literal_attrs_text(node)}"
        yield _join_nonempty(line, once, _location_text(node))
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


def _operands_text(numbers: ValueNumbers, node: OpNode) -> str:
    return f"{numbers.tuple_text(node.inputs)} -> {numbers.tuple_text(node.outputs)}"


def _location_text(node: OpNode) -> str:
    text = str(node.provenance)
    return f"[{text if text.isprintable() else repr(text)}]" if text else ""


def _join_nonempty(*parts: str) -> str:
    return "  ".join(filter(None, parts))


def call_log_text(trace: CallLog) -> str:
    """Return the calls of a call log, one on each line."""
    lines = [f"trace of {trace.graph!r}: {len(trace.calls)} calls"]
    return "\n".join(lines + [_call_line(index, call) for index, call in enumerate(trace.calls)])


def _call_line(index: int, call: Call) -> str:
    nodes = f"  <- {', '.join(call.nodes)}" if call.nodes else ""
    kinds = " ".join(call.kinds) or "-"
    return f"  #{index:03d} {call.phase:<7} {kinds} kid={call.kernel} backend={call.backend}{nodes}"
