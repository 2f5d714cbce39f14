"""Comparison of every op of a graph with the op of this process, by the schemas that its file records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from npu_ir._torch.ops import OpOverload, parse_schema
from npu_ir.core.node import OpNode
from npu_ir.graph.graph import Graph
from npu_ir.ops.schema import find_op, resolve
from npu_ir.serial.compatibility.absent_ops import absence
from npu_ir.serial.compatibility.arguments import argument_changes
from npu_ir.serial.compatibility.report import Change, OpCompatibility, Verdict

_MAX_NESTING = 16
_EXPORT_AGAIN = "use the PyTorch the file was made with, or export the model again"


def calls_by_op(graph: Graph) -> dict[str, list[OpNode]]:
    """Return the nodes of ``graph``, its regions included, by op type."""
    calls: dict[str, list[OpNode]] = {}
    for part in graph.graphs():
        for node in part.nodes:
            calls.setdefault(node.op_type, []).append(node)
    return calls


def compare_op(op_type: str, recorded: str | None, calls: Iterable[OpNode]) -> OpCompatibility:
    """Return the changes of one op since its schema was ``recorded``, for these calls of it.

    Calls name their arguments and leave out those at their defaults. So a change matters where a call depends
    on it, and nowhere else.
    """
    op = resolve(op_type)
    if op is None:
        is_function = recorded is None and find_op(op_type) is not None  # of numbers, or of regions
        changes = () if is_function else absence(op_type, recorded, list(calls))
        return OpCompatibility(op_type, recorded, None, changes)
    present = str(op._schema)
    if recorded == present:
        return OpCompatibility(op_type, recorded, present)
    return OpCompatibility(op_type, recorded, present, _changes(op, recorded, list(calls)))


def _changes(op: OpOverload, recorded: str | None, calls: list[OpNode]) -> tuple[Change, ...]:
    if recorded is None:
        text = "the file records no schema: only the names of its arguments have been checked"
        return (Change("not recorded", Verdict.COMPATIBLE, text),)
    old = parse_schema(recorded) if is_safe_to_parse(recorded) else None
    if old is None:
        text = f"the recorded schema cannot be read: {recorded[:200]!r}"
        return (Change("unreadable schema", Verdict.INCOMPATIBLE, text, fix=_EXPORT_AGAIN),)
    return (*argument_changes(old, op._schema, calls), *_result_changes(old, op._schema))


def _result_changes(old: Any, new: Any) -> Iterator[Change]:
    """Yield a change if a call does not return what the old schema promises."""
    before, after = (f"({', '.join(str(item.type) for item in schema.returns)})" for schema in (old, new))
    keeps_types = len(old.returns) == len(new.returns) and all(
        item.type.isSubtypeOf(promised.type) for item, promised in zip(new.returns, old.returns, strict=True)
    )
    if not keeps_types:
        text = f"it returned {before}, and returns {after}"
        yield Change("changed results", Verdict.INCOMPATIBLE, text, fix=_EXPORT_AGAIN)
    elif list(map(_alias, old.returns)) != list(map(_alias, new.returns)):
        text = "its results share memory with other arguments than they did"
        yield Change("changed results", Verdict.INCOMPATIBLE, text, fix=_EXPORT_AGAIN)


def _alias(item: Any) -> tuple[bool, tuple[str, ...]] | None:
    alias = item.alias_info
    return None if alias is None else (alias.is_write, tuple(sorted(alias.before_set)))


def is_safe_to_parse(schema: str) -> bool:
    """Return whether ``schema`` is safe to pass to torch's schema parser.

    The parser recurses without a limit: deep nesting overflows the C stack and ends the process (torch 2.13).
    """
    depth = deepest = 0
    for char in schema:
        depth += (char in "([") - (char in ")]")
        deepest = max(deepest, depth)
    return schema.isascii() and deepest <= _MAX_NESTING
