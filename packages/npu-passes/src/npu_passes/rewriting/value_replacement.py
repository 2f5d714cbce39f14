"""Replacement of values by others, in their strides, and copied where callers would see shared memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from npu_ir import Graph, TensorType, Value
from npu_ir.core.types import Type, contiguous_strides
from npu_ir.ops.effects import is_view
from npu_ir.ops.fake_values import LARGE, nearest_value
from npu_ir.symbolic.constraints import Range
from npu_ir.symbolic.expressions import Dim, substitute_symbols
from npu_passes.core.edit import Edit
from npu_passes.errors import PassError
from npu_passes.rewriting.aliasing import AliasAnalysis

# Sample values at which symbolic strides are compared: ``min(16, 16*s0)`` is 16 for an ``s0`` of at least 1.
_SIZES = (0, 1, 7, LARGE)


def can_convert_strides(found: Type, wanted: Type, symbols: Mapping[str, Range]) -> bool:
    """Return whether `convert_strides` can convert a value of type ``found`` to the strides of ``wanted``."""
    return has_same_strides(found, wanted, symbols) or _memory_order(wanted, symbols) is not None


def convert_strides(edit: Edit, value: Value, wanted: Type) -> Value:
    """Return ``value`` in the strides of ``wanted``: itself, or a copy where they differ."""
    if has_same_strides(value.type, wanted, edit.graph.symbols):
        return value
    order = _memory_order(wanted, edit.graph.symbols)
    assert order is not None
    return _copy_in_order(edit, value, order)


def _copy_in_order(edit: Edit, value: Value, order: list[int]) -> Value:
    """Return a dense copy of ``value`` whose dimensions have this order in memory, outermost first."""
    if order == sorted(order):
        return edit.call("aten.clone.default", value, memory_format=torch.contiguous_format)
    # A contiguous copy of the permuted value has the wanted memory order; permute it back.
    outermost_first = edit.call("aten.permute.default", value, order)
    copy = edit.call("aten.clone.default", outermost_first, memory_format=torch.contiguous_format)
    back = [order.index(axis) for axis in range(len(order))]
    return edit.call("aten.permute.default", copy, back)


def equals_up_to_strides(left: Type, right: Type) -> bool:
    """Return whether types are equal except for strides: then a value of one can replace one of the other."""
    return left == right or (isinstance(left, TensorType) and left.same_shape_and_dtype(right))


def has_same_strides(left: Type, right: Type, symbols: Mapping[str, Range]) -> bool:
    """Return whether strides are equal in all dimensions of more than one element."""
    if left == right or not (isinstance(left, TensorType) and isinstance(right, TensorType)):
        return True
    return all(
        _are_equal_strides(sizes.shape, _strides(sizes), _strides(other))
        for values in _sample_sizes(left.symbols | right.symbols, symbols)
        for sizes, other in [(left.substitute(values), right.substitute(values))]
    )


def _are_equal_strides(shape: Sequence[Dim], strides: Sequence[Dim], others: Sequence[Dim]) -> bool:
    pairs = zip(shape, strides, others, strict=True)
    return 0 in shape or all(size == 1 or stride == other for size, stride, other in pairs)


def _strides(type: TensorType) -> tuple[Dim, ...]:
    return contiguous_strides(type.shape) if type.strides is None else type.strides


def _sample_sizes(names: set[str], symbols: Mapping[str, Range]) -> list[dict[str, Dim]]:
    return [
        {name: nearest_value(symbols[name], size) for name in names} for size in _SIZES[: 4 if names else 1]
    ]


def _memory_order(type: Type, symbols: Mapping[str, Range]) -> list[int] | None:
    """Return the dimensions of a dense tensor, outermost first; None if it has gaps or overlaps."""
    if not isinstance(type, TensorType) or type.layout is not torch.strided:
        return None
    samples = _sample_sizes(type.symbols, symbols)
    strides = [substitute_symbols(stride, samples[-1]) for stride in _strides(type)]
    order = sorted(range(type.rank), key=lambda axis: (strides[axis], type.shape[axis] != 1), reverse=True)
    for fixed in map(type.substitute, samples):
        shape = [fixed.shape[axis] for axis in order]
        if not _are_equal_strides(
            shape, [_strides(fixed)[axis] for axis in order], contiguous_strides(shape)
        ):
            return None
    return order


def match_strides(edit: Edit, value: Value, old: Value) -> Value:
    """Return ``value``, or a copy, in the strides of ``old``, which readers such as views may depend on.

    Raises:
        PassError: The strides differ, and those of ``old`` overlap or have gaps.
    """
    if not (isinstance(old.type, TensorType) and old.type.same_shape_and_dtype(value.type)):
        return value
    if has_same_strides(value.type, old.type, edit.graph.symbols):
        return value
    order = _memory_order(old.type, edit.graph.symbols)
    if order is None:
        raise PassError(
            f"the replacement is {value.type}, and %{old.name} is {old.type}: the strides differ",
            fix="let the op of the replacement return a tensor in these strides, or refuse such values with"
            " where=",
        )
    return _copy_in_order(edit, value, order)


class ValueReplacer:
    """Replacer of values during one run of a pass.

    A result of the graph that did not share memory still does not: it becomes a copy if a rule removes
    the op that allocated it.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._sharing: AliasAnalysis | None = None

    def replace(self, edit: Edit, old: Value, new: Value) -> str | None:
        """Replace every use of ``old`` by ``new``, or a copy of it, and return None.

        If ``old`` already is a copy of ``new`` and has to be one, leave it and return the reason.
        """
        if _is_copy(old, new):
            reason = self._reason_to_copy(edit, old, new)
            if reason is not None:
                return reason
        placed = match_strides(edit, new, old)
        # A new node that is not a view has memory of its own; anything else may alias what callers see.
        if placed.producer is None or placed.producer.name not in edit.made or is_view(placed.producer):
            sharing = self._alias_analysis(edit)
            if sharing.find_obstacle(old, placed) is None:
                sharing.record_replacement(old, placed)
            else:
                placed = match_strides(edit, edit.call("aten.clone.default", placed), old)
        edit.replace(old, placed)
        return None

    def _reason_to_copy(self, edit: Edit, old: Value, new: Value) -> str | None:
        if not has_same_strides(new.type, old.type, self._graph.symbols):
            return f"it is a copy of %{new.name} in other strides"
        return self._alias_analysis(edit).find_obstacle(old, new)

    def _alias_analysis(self, edit: Edit) -> AliasAnalysis:
        """Return the alias analysis of the graph, including the new nodes of ``edit``."""
        nodes = [self._graph.node(name) for name in edit.made]
        if self._sharing is None:
            self._sharing = AliasAnalysis(self._graph)
            nodes = list(self._graph.nodes)
        for node in nodes:
            self._sharing.add_node(node)
        return self._sharing


def _is_copy(old: Value, new: Value) -> bool:
    node = old.producer
    return node is not None and node.op_type == "aten.clone.default" and node.inputs[0] is new
