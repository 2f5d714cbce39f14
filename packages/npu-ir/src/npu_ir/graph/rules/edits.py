"""Checks on the arguments of graph edits, made before an edit changes anything."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch

from npu_ir.core.literals import Literal, to_literal
from npu_ir.core.node import InputKind, Value
from npu_ir.core.types import TensorType
from npu_ir.errors import GraphError
from npu_ir.ops.arguments import record_problem
from npu_ir.symbolic.constraints import Range

if TYPE_CHECKING:
    from npu_ir.graph.graph import Graph


MAX_REGION_DEPTH = 64  # regions are traversed recursively


def normalize_attrs(op_type: str, attrs: Mapping[str, Literal]) -> dict[str, Literal]:
    """Return the attributes of a node as literals.

    Raises:
        GraphError: A name is not a string, a value is not plain data, or the list record is wrong.
    """
    literals = {}
    for name, value in attrs.items():
        if not isinstance(name, str):
            raise GraphError(f"attributes have names, not {name!r}", where=op_type)
        try:
            literals[name] = to_literal(value)
        except GraphError as error:
            where = f"attribute {name!r} of {op_type}"
            raise GraphError(error.message, where=where, fix=error.fix) from error
    problem = record_problem(literals)
    if problem is not None:
        raise GraphError(problem, where=op_type)
    return literals


def merge_symbols(graph: Graph, regions: Mapping[str, Graph]) -> dict[str, Range]:
    """Return the symbols of ``graph`` united with those of these regions.

    Raises:
        GraphError: A region belongs to another node, is given twice, contains the graph, has a prologue, or
            declares a symbol with another range.
    """
    merged = dict(graph.symbols)
    # The graphs that already have a place: a region must not occur twice, nor contain this graph.
    nested = {id(graph)}
    for argument, region in regions.items():
        if _nesting_depth(graph) + _nesting_height(region) > MAX_REGION_DEPTH:
            raise GraphError(f"regions nested deeper than {MAX_REGION_DEPTH}", where=f"region {argument!r}")
        parts = set(map(id, region.graphs()))
        if region.owner is not None or parts & nested:
            raise GraphError(f"the region {argument!r} belongs to another node", fix="pass a clone of it")
        if region.prologue:
            raise GraphError(
                f"the region {argument!r} has a prologue: only a program is bound to weights",
                fix="make regions of graphs before nodes move to the prologue",
            )
        for name, range in region.symbols.items():
            if merged.setdefault(name, range) != range:
                raise GraphError(
                    f"symbol {name!r} is in {range} in the region {argument!r}, "
                    f"but in {merged[name]} around it"
                )
        nested |= parts
    return merged


def release_region(region: Graph) -> None:
    """Detach a region from its node, with a copy of the symbols that it shared with the program."""
    region._owner = None
    symbols = dict(region.symbols)
    for graph in region.graphs():
        graph._symbols = symbols


def _nesting_depth(graph: Graph) -> int:
    """Return the nesting depth of a graph in its program: 0 for the program itself."""
    levels, node = 0, graph.owner
    while node is not None and node.graph is not None:
        levels, node = levels + 1, node.graph.owner
    return levels


def _nesting_height(graph: Graph) -> int:
    """Return the height of the tree of regions below ``graph``, itself included."""
    inner = [_nesting_height(region) for node in graph.nodes for region in node.regions.values()]
    return 1 + max(inner, default=0)


def require_same_type(old: Value, new: Value) -> None:
    """Require that two values agree in type, strides aside, such that one can replace the other."""
    alike = old.type == new.type or (
        isinstance(old.type, TensorType) and old.type.same_shape_and_dtype(new.type)
    )
    if not alike:
        raise GraphError(f"%{new.name} is {new.type}, it cannot stand for %{old.name}, which is {old.type}")


def is_replaceable(target: Value, value: Value) -> bool:
    """Return whether the update ``value`` may have another shape or dtype than ``target``, a buffer."""
    return target.kind is InputKind.BUFFER and isinstance(value.type, TensorType)


def overlap_problem(value: Value, other: Value) -> str | None:
    """Return why two values cannot overlap in memory; None if they can."""
    if value is other or {value.kind, other.kind} != {InputKind.INPUT}:
        return f"%{value.name} and %{other.name} are not two inputs"
    types = value.type, other.type
    if not all(isinstance(type, TensorType) and not type.symbols for type in types):
        return f"%{value.name} and %{other.name} are not tensors of fixed sizes"
    if value.tensor_type.dtype != other.tensor_type.dtype:
        return (
            f"%{value.name} is {value.type}, and %{other.name} {other.type}: "
            "they overlap in elements of one dtype"
        )
    return None


def validate_data(data: torch.Tensor, type: TensorType | None, target: str) -> torch.Tensor:
    """Return the content of a constant or buffer, without autograd history.

    Raises:
        GraphError: It is not a dense tensor with data, or not of ``type``.
    """
    checked = data.detach()
    kind = (
        checked.layout
        if checked.layout is not torch.strided
        else checked.dtype
        if checked.is_quantized
        else None
    )
    if kind is not None or checked.is_meta or checked.__class__ is not torch.Tensor:
        raise GraphError(
            f"the data of {target!r} is a {checked.__class__.__name__} of {kind or checked.device}, "
            "not a dense tensor with data",
            fix="pass a plain torch.Tensor with real data: to_dense(), dequantize(), or register_buffer in "
            "the model",
        )
    if type is not None and not type.same_shape_and_dtype(TensorType.of(checked)):
        raise GraphError(f"{target!r} is {type}, its data is {TensorType.of(checked)}")
    return checked
