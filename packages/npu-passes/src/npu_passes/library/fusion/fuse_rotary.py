"""Fusion of a rotary embedding that is written out."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass

from npu_ir import Graph, OpNode, Value
from npu_passes.core.base import Pass
from npu_passes.ops.rotary import ROTARY_EMBEDDING
from npu_passes.rewriting.arguments import arguments_of
from npu_passes.rewriting.value_replacement import match_strides

_RULE = "rotary"
_MUL, _CAT, _SLICE = "aten.mul.Tensor", "aten.cat.default", "aten.slice.Tensor"


@dataclass(frozen=True, slots=True)
class _Span:
    """Elements ``start`` to ``stop`` of the rows of a value."""

    source: Value
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class _Turn:
    """``x * cos + rotate_half(x) * sin``."""

    x: Value
    cos: Value
    sin: Value
    nodes: tuple[OpNode, ...]


class FuseRotary(Pass):
    """Fuse a rotary embedding that is written out, as in the models of `transformers`, into one op.

    That is ``x * cos + rotate_half(x) * sin``, where ``rotate_half(x)`` is ``cat((-x[..., half:], x[...,
    :half]), -1)``, in one dtype. Where only the first elements of rows are turned and the others follow
    (``cat((turned, x[..., width:]), -1)``), the op does that, too. Elements that are paired as neighbours
    stay as they are. The op computes the same in the same order.
    """

    name = "fuse-rotary"
    is_idempotent = True

    def run(self, graph: Graph) -> bool:
        """Try each sum."""
        edited = False
        for node in graph.nodes_of("aten.add.Tensor"):
            turn = None if node.in_prologue else _turn_of(node)
            if turn is None:
                continue
            if (reason := _problem(turn, node.outputs[0])) is not None:
                self.refuse(node, reason, _RULE)
                continue
            self._fuse(graph, node, turn)
            edited = True
        return edited

    def _fuse(self, graph: Graph, node: OpNode, turn: _Turn) -> None:
        x, old, nodes = turn.x, node.outputs[0], (*turn.nodes, node)
        if (joined := _joined_rows(old, turn)) is not None:
            x, whole = joined
            old, nodes = whole.outputs[0], (*nodes, *filter(_is_part, _producers(whole.inputs)), whole)
        with self.rewrite(graph, _RULE, *nodes) as edit:
            new = edit.call(ROTARY_EMBEDDING, x, turn.cos, turn.sin)
            edit.replace(old, match_strides(edit, new, old))


def _turn_of(node: OpNode) -> _Turn | None:
    """Return what a sum computes if it is a rotary embedding."""
    products = [item.producer for item in node.inputs]
    if node.attrs.get("alpha", 1) != 1 or len(products) != 2:
        return None
    for plain, turned in itertools.permutations(products):
        if not (_is_product(plain) and _is_product(turned)):
            return None
        assert plain is not None
        assert turned is not None
        for rotated, sin in itertools.permutations(turned.inputs):
            half = _half_of(rotated)
            if half is None:
                continue
            for x, cos in itertools.permutations(plain.inputs):
                if _is_rotated(x, half):
                    return _Turn(x, cos, sin, (*_parts_of(x, rotated), plain, turned))
    return None


def _is_product(node: OpNode | None) -> bool:
    return node is not None and node.op_type == _MUL and len(node.inputs) == 2


def _is_part(node: OpNode) -> bool:
    return node.op_type in (_SLICE, "aten.neg.default")


def _producers(values: Iterable[Value]) -> list[OpNode]:
    return [item.producer for item in values if item.producer is not None]


def _parts_of(x: Value, rotated: Value) -> tuple[OpNode, ...]:
    """Return the nodes from rows to what is rotated, in an order in which each reads only earlier ones."""
    (node,) = _producers([rotated])
    parts = _producers(node.inputs)
    before = [item for part in parts for item in _producers(part.inputs)]
    return (*dict.fromkeys(filter(_is_part, (*_producers([x]), *before, *parts))), node)


def _half_of(rotated: Value) -> tuple[_Span, _Span] | None:
    """Return the halves of ``cat((-second, first), -1)``, the first one first."""
    node = rotated.producer
    if node is None or node.op_type != _CAT or len(node.inputs) != 2 or not _joins_rows(node):
        return None
    second, first = node.inputs
    if second.producer is None or second.producer.op_type != "aten.neg.default":
        return None
    return _span_of(first), _span_of(second.producer.inputs[0])


def _joins_rows(node: OpNode) -> bool:
    dim, rank = arguments_of(node, defaults=True)["dim"], node.outputs[0].tensor_type.rank
    return isinstance(dim, int) and dim % max(1, rank) == rank - 1


def _span_of(value: Value) -> _Span:
    """Return the elements of rows that a value is, through slices along the last axis."""
    start, length = 0, value.tensor_type.shape[-1] if value.tensor_type.rank else 0
    while (node := value.producer) is not None and node.op_type == _SLICE and isinstance(length, int):
        arguments = arguments_of(node, defaults=True)
        source = node.inputs[0]
        rank, size = source.tensor_type.rank, source.tensor_type.shape[-1]
        if len(node.inputs) > 1 or arguments["dim"] % rank != rank - 1 or arguments["step"] != 1:
            break
        first = arguments["start"] or 0
        if not (isinstance(size, int) and isinstance(first, int)):
            break
        start += slice(first, None).indices(size)[0]
        value = source
    return _Span(value, start, start + length if isinstance(length, int) else -1)


def _is_rotated(x: Value, halves: tuple[_Span, _Span]) -> bool:
    whole, (first, second) = _span_of(x), halves
    return (
        whole.source is first.source is second.source
        and whole.start == first.start
        and first.stop == second.start
        and second.stop == whole.stop
        and first.stop - first.start == second.stop - second.start
    )


def _problem(turn: _Turn, result: Value) -> str | None:
    """Return the reason why the op does not compute a rotary embedding; None if it does."""
    x, cos, sin = (item.tensor_type for item in (turn.x, turn.cos, turn.sin))
    if not x.dtype == cos.dtype == sin.dtype == result.tensor_type.dtype:
        return f"the input and the angles differ in dtype: {x}, {cos}, {sin}"
    if cos.shape != sin.shape:
        return f"cos is {cos}, sin {sin}"
    if not cos.rank or cos.shape[-1] != x.shape[-1] or result.tensor_type.shape != x.shape:
        return f"the angles, {cos}, are not those of the elements of rows of {x}"
    return None


def _joined_rows(turned: Value, turn: _Turn) -> tuple[Value, OpNode] | None:
    """Return rows whose first elements are turned, and the node that joins them to the others."""
    users = list(dict.fromkeys(turned.users))
    if len(users) != 1 or users[0].op_type != _CAT or turned.is_output:
        return None
    (node,) = users
    if node.in_prologue or len(node.inputs) != 2 or node.inputs[0] is not turned or not _joins_rows(node):
        return None
    part, rest = _span_of(turn.x), _span_of(node.inputs[1])
    if rest.source is not part.source or rest.start != part.stop:
        return None
    value = turn.x
    while value.producer is not None and value.producer.op_type == _SLICE:
        value = value.producer.inputs[0]
        if _span_of(value) == _Span(part.source, part.start, rest.stop):
            return value, node
    return None
