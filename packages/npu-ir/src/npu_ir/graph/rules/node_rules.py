"""Rules of single nodes: regions, and the fit of inputs and attributes to the schema of the op."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from npu_ir._torch.ops import OpOverload
from npu_ir.core.literals import format_literal
from npu_ir.core.node import OpNode, Value
from npu_ir.core.types import TensorType, Type
from npu_ir.errors import GraphError
from npu_ir.ops.arguments import LIST_SIZES, NONE_MASKS, list_operand
from npu_ir.ops.calls import bind_node
from npu_ir.ops.schema import OpSchema, find_op, schema_of

if TYPE_CHECKING:
    from collections.abc import Hashable

    from npu_ir.graph.graph import Graph


# By op and region, the list arguments of the node whose concatenation is passed to the region.
_PASSED_LISTS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "higher_order.cond": {"true_fn": ("operands",), "false_fn": ("operands",)},
    "higher_order.while_loop": {
        "cond_fn": ("carried_inputs", "additional_inputs"),
        "body_fn": ("carried_inputs", "additional_inputs"),
    },
}
# By op, the regions whose results are those of the node.
_RETURNING_REGIONS = {"higher_order.cond": ("true_fn", "false_fn"), "higher_order.while_loop": ("body_fn",)}


def region_problems(graph: Graph) -> Iterator[str]:
    """Yield the violations of these rules by the regions of the nodes of ``graph``."""
    for node in graph.nodes:
        for argument, region in node.regions.items():
            where = f"region {argument!r} of node {node.name!r}"
            if region.owner is not node or region._symbols is not graph._symbols:
                yield f"the {where} does not know that it belongs there"
            if region.weights or region.updates:
                yield (
                    f"the {where} has parameters, buffers, optimizer state or updates: "
                    "pass in what it reads, return what it makes"
                )
            lists = _PASSED_LISTS.get(node.op_type, {}).get(argument)
            if lists is not None:
                parameters = [value.type for value in region.inputs]
                yield from _type_mismatches(
                    f"the {where} takes", parameters, "gets", _passed_types(node, lists)
                )
            if argument in _RETURNING_REGIONS.get(node.op_type, ()):
                returned = [leaf.type if isinstance(leaf, Value) else None for leaf in region.results[1]]
                outputs: list[Type | None] = [value.type for value in node.outputs]
                yield from _type_mismatches(f"the {where} returns", returned, "should return", outputs)


def _passed_types(node: OpNode, lists: tuple[str, ...]) -> list[Type | None]:
    """Return the types of the values that a node passes to a region; None for plain data."""
    types = {operand: value.type for operand, value in zip(node.operands or (), node.inputs, strict=False)}
    passed: list[Type | None] = []
    for name in lists:
        items: Any = node.attrs.get(name)
        if not isinstance(items, (list, tuple)):
            continue  # fewer values than the region takes
        passed += [types.get(list_operand(name, index)) for index in range(len(items))]
    return passed


def _type_mismatches(what: str, found: list[Any], verb: str, wanted: list[Type | None]) -> Iterator[str]:
    if len(found) != len(wanted):
        yield f"{what} {len(found)} values, and {verb} {len(wanted)}"
        return
    for index, (one, other) in enumerate(zip(found, wanted, strict=True)):
        if one is not None and other is not None and not _is_compatible(one, other):
            yield f"{what} {one} as number {index}, and {verb} {other}"


def _is_compatible(one: Type, other: Type) -> bool:
    """Return whether two types agree, sizes aside: these may use other symbols inside a region."""
    if isinstance(one, TensorType) and isinstance(other, TensorType):
        return (one.dtype, one.rank) == (other.dtype, other.rank)
    return type(one) is type(other) and getattr(one, "kind", None) == getattr(other, "kind", None)


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
        if schema is None:
            continue
        form = _schema_key(node)
        problem = None if form in fitting else _schema_problem(schema, node)
        if problem is None:
            problem = _attribute_problem(schema, node, has_gaps=form is None)
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


def _attribute_problem(schema: OpSchema, node: OpNode, *, has_gaps: bool) -> str | None:
    """Return which attribute is not of the type that the schema states; lists may have gaps for inputs."""
    for name, value in node._attrs.items():
        argument = schema.by_name.get(name)
        if argument is None or argument.type is None:
            continue
        is_accepted = argument.type.accepts_with_gaps if has_gaps else argument.type.accepts
        if not is_accepted(value):
            return (
                f"{node.op_type} takes {argument.type.text} as {name!r}, not {format_literal(value)}; "
                f"its schema is {schema.text}"
            )
    return None
