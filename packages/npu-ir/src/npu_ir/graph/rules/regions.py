"""Rules of regions: ownership, and the arguments and results that the node requires."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from npu_ir.core.node import OpNode, Value
from npu_ir.core.types import TensorType, Type
from npu_ir.ops.arguments import list_operand

if TYPE_CHECKING:
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
        items: Any = node.attrs.get(name) or ()
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
