"""Rules of op schemas: the inputs and attributes of a node fit the schema of its op."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from npu_ir._torch.ops import OpOverload
from npu_ir.core.node import OpNode
from npu_ir.errors import GraphError
from npu_ir.ops.arguments import LIST_SIZES, NONE_MASKS
from npu_ir.ops.calls import bind_node
from npu_ir.ops.schema import OpSchema, find_op, schema_of

if TYPE_CHECKING:
    from collections.abc import Hashable


def schema_problems(nodes: Iterable[OpNode]) -> Iterator[str]:
    """Yield a message for each node that does not fit the schema of its op; unknown ops fit any node."""
    # A model repeats few kinds of nodes: binding one node of each kind suffices.
    schemas: dict[str, OpSchema | None] = {}
    fitting: set[Hashable] = set()
    for node in nodes:
        if node.op_type not in schemas:
            op = find_op(node.op_type)
            schemas[node.op_type] = None if op is None else schema_of(op)
        schema = schemas[node.op_type]
        form = None if schema is None else _schema_key(node)
        if schema is None or form in fitting:
            continue
        problem = _schema_problem(schema, node)
        if problem is not None:
            yield f"node {node.name!r}: {problem}"
        elif form is not None:
            fitting.add(form)


def _schema_key(node: OpNode) -> Hashable:
    """Return a key such that nodes of equal keys fit their schema alike; None if there is none.

    There is none if the content of attributes matters, too: if a list contains inputs.
    """
    operands = () if node.operands is None else tuple(node.operands)
    names = tuple(node.attrs)
    if node.regions or _has_list_elements(operands) or LIST_SIZES in names or NONE_MASKS in names:
        return None
    return node.op_type, node.operands is None, operands, len(node.inputs), names


@functools.lru_cache(maxsize=1024)
def _has_list_elements(operands: tuple[str, ...]) -> bool:
    """Return whether one of the operands is a list element."""
    return any("[" in operand for operand in operands)


def _schema_problem(schema: OpSchema, node: OpNode) -> str | None:
    if node.regions and isinstance(schema.op, OpOverload):
        return f"{node.op_type} takes no regions"
    if schema.writes and not schema.runs_on_copies:
        return f"{node.op_type} changes a tensor in place"
    try:
        bind_node(schema, node)
    except GraphError as error:
        return error.message
    return None
