"""Ops that this process does not have: removed overloads and ops, unregistered namespaces."""

from __future__ import annotations

from collections.abc import Sequence

from npu_ir._torch.ops import OpOverload, has_namespace, overloads_of
from npu_ir.core.node import OpNode
from npu_ir.core.types import TensorType
from npu_ir.errors import GraphError
from npu_ir.ops.arguments import path_of_operand
from npu_ir.ops.calls import bind_node
from npu_ir.ops.execution import is_executable
from npu_ir.ops.schema import ArgKind, OpSchema, op_type_of, schema_of
from npu_ir.plugins import plugin_manager
from npu_ir.plugins.distributions import install_hint
from npu_ir.serial.compatibility.report import ArgumentEdit, Change, Verdict
from npu_ir.serial.compatibility.successors import SUCCESSORS


def absence(op_type: str, recorded: str | None, calls: Sequence[OpNode]) -> tuple[Change, ...]:
    """Return the change that explains why ``op_type`` is not an op of this process, with what to do."""
    if is_executable(op_type):
        if recorded is None:
            return ()
        text = "a plugin runs it here, and PyTorch does not have it: its schema cannot be compared"
        return (Change("run by a plugin", Verdict.COMPATIBLE, text),)
    namespace, _, rest = op_type.partition(".")
    name, _, overload = rest.partition(".")
    nodes = tuple(node.name for node in calls)
    others = overloads_of(namespace, name) if name.isidentifier() else []
    if others:
        text = f"there is no overload {overload!r} of {namespace}.{name} here"
        fix = _overload_fix([op for op in others if _accepts(op, calls)], others)
        return (Change("removed overload", Verdict.INCOMPATIBLE, text, fix=fix, nodes=nodes),)
    if has_namespace(namespace):
        return (_removal(op_type, calls),)
    text = f"nothing here registers the namespace {namespace!r}"
    fix = _namespace_fix(namespace)
    return (Change("unknown namespace", Verdict.INCOMPATIBLE, text, fix=fix, nodes=nodes),)


def _removal(op_type: str, calls: Sequence[OpNode]) -> Change:
    """Return the change of an op that is gone: to be replaced by its successor, if every call fits that."""
    namespace, name = op_type.split(".")[:2]
    text = f"the namespace {namespace!r} has no op {name!r} here"
    nodes = tuple(node.name for node in calls)
    successor = SUCCESSORS.get(op_type)
    if successor is not None and successor.accepts(calls):
        edit = ArgumentEdit("replace", content=successor)
        fix = f"npu check-compat FILE -o NEW calls {successor.op_type}, which computes the same"
        return Change("removed op", Verdict.MIGRATABLE, text, fix=fix, nodes=nodes, edit=edit)
    library = "PyTorch" if namespace == "aten" else f"version of the library of {namespace!r}"
    fix = f"use the {library} that the file was made with, or export the model again, without this op"
    return Change("removed op", Verdict.INCOMPATIBLE, text, fix=fix, nodes=nodes)


def _accepts(op: OpOverload, calls: Sequence[OpNode]) -> bool:
    """Return whether ``op`` is functional and takes the arguments of every call, by their names and kinds."""
    schema = schema_of(op)
    if schema.writes or any(_has_tensor_in_place_of_plain_data(schema, node) for node in calls):
        return False
    try:
        for node in calls:
            bind_node(schema, node)
    except GraphError:
        return False
    return True


def _has_tensor_in_place_of_plain_data(schema: OpSchema, node: OpNode) -> bool:
    names = [path_of_operand(operand)[0] for operand in node.operands or ()]
    plain = {arg.name for arg in schema.args if arg.kind is ArgKind.PLAIN}
    values = zip(names, node.inputs, strict=False)
    return any(name in plain and isinstance(value.type, TensorType) for name, value in values)


def _overload_fix(fitting: Sequence[OpOverload], others: Sequence[OpOverload]) -> str:
    if fitting:
        names = " or ".join(op_type_of(op) for op in fitting)
        return f"read whether {names}, which accepts the same arguments, computes the same, and replace it"
    names = ", ".join(op_type_of(op) for op in others)
    return f"export the model again: none of {names} accepts the same arguments"


def _namespace_fix(namespace: str) -> str:
    hint = install_hint("namespaces", namespace)
    if hint is not None:
        return hint
    refused = [
        f"{report.name} ({report.distribution})" for report in plugin_manager.all_reports() if report.refused
    ]
    because = f"; refused here: {', '.join(refused)}, npu plugins says why" if refused else ""
    return (
        f"import the Python package that registers {namespace!r}, or install its plugin, "
        f"which npu imports by itself{because}"
    )
