"""Dumps of a captured step as plain data for JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from npu_ir import Graph, OpNode, Value
from npu_ir.core.literals import literal_to_json
from npu_ir.plugins.backend import Operand
from npu_ir.serial.value_json import type_to_json
from npu_runtime.lowering.aten_calls import ATEN
from npu_runtime.lowering.lowered_graph import Lowered, LoweredOp
from npu_runtime.lowering.schema_names import schema_name
from npu_runtime.lowering.value_numbers import ValueNumbers, argument_role
from npu_runtime.training.dumps.call_log import CallLog


def graph_record(graph: Graph) -> dict[str, Any]:
    """Return values, nodes, results and updates of a graph, with values referred to by number."""
    numbers = ValueNumbers(graph)
    return {
        "graph": graph.name,
        "values": [_value_record(numbers, value) for value in graph.values],
        "nodes": [_node_record(numbers, node) for node in graph.nodes],
        "results": [
            {"value": numbers.number_of(leaf)}
            if isinstance(leaf, Value)
            else {"literal": literal_to_json(leaf)}
            for leaf in graph.results[1]
        ],
        "updates": [
            [numbers.number_of(target), numbers.number_of(value)] for target, value in graph.updates.items()
        ],
    }


def _value_record(numbers: ValueNumbers, item: Operand) -> dict[str, Any]:
    record = {"id": numbers.number_of(item), "name": item.name, "type": type_to_json(item.type)}
    if isinstance(item, Value) and item.argument is not None:
        record.update(role=argument_role(item), target=item.argument.target)
    return record


def _node_record(numbers: ValueNumbers, node: OpNode) -> dict[str, Any]:
    return {
        "name": node.name,
        "op": node.op_type,
        "inputs": [numbers.number_of(value) for value in node.inputs],
        "operands": None if node.operands is None else list(node.operands),
        "outputs": [numbers.number_of(value) for value in node.outputs],
        "attrs": _attrs_record(node),
        "once": node.in_prologue,
        "module": node.provenance.module,
        "source": node.provenance.source,
    }


def _attrs_record(node: OpNode) -> dict[str, Any]:
    return {name: literal_to_json(item) for name, item in node.attrs.items()}


def lowered_record(lowered: Lowered) -> dict[str, Any]:
    """Return the ops of a lowered graph, with values referred to by their numbers in ``20_ir``."""
    numbers = ValueNumbers(lowered.graph, lowered.temporaries)
    return {
        "graph": lowered.graph.name,
        "backends": list(lowered.backends),
        "temporaries": [_value_record(numbers, item) for item in lowered.temporaries],
        "once": [_op_record(numbers, item) for item in lowered.prologue],
        "ops": [_op_record(numbers, item) for item in lowered.ops],
    }


def _op_record(numbers: ValueNumbers, item: LoweredOp) -> dict[str, Any]:
    return {
        "kind": item.op.kind,
        "backend": item.backend,
        "kernel": item.op.kernel,
        "inputs": [numbers.number_of(operand) for operand in item.op.inputs],
        "outputs": [numbers.number_of(operand) for operand in item.op.outputs],
        "nodes": [node.name for node in item.op.nodes],
        "refusals": dict(item.refusals),
    }


def attrs_records(lowered: Lowered) -> list[dict[str, Any]]:
    """Return the attributes of each op, in the order of ``30_lowered``."""
    return [_op_attrs_record(index, item) for index, item in enumerate(lowered.ops)]


def _op_attrs_record(index: int, item: LoweredOp) -> dict[str, Any]:
    record: dict[str, Any] = {"op": index, "kind": item.op.kind}
    if item.backend == ATEN:
        return {**record, "attrs": _attrs_record(item.op.nodes[0])}
    packed = {"schema": schema_name(item.op.schema_id), "schema_id": item.op.schema_id}
    return {**record, **packed, "bytes": item.op.attrs.hex()}


def call_log_record(trace: CallLog) -> dict[str, Any]:
    """Return the calls of a call log, in order."""
    calls = [{**asdict(call), "kinds": list(call.kinds), "nodes": list(call.nodes)} for call in trace.calls]
    return {"graph": trace.graph, "calls": calls}
