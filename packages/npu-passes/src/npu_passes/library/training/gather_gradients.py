"""Concatenation of the gradients of a tensor's slices."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from npu_ir import Graph, OpNode, TensorType, Value
from npu_passes.core.base import Pass
from npu_passes.core.edit import Edit
from npu_passes.rewriting.arguments import arguments_of
from npu_passes.rewriting.value_replacement import can_convert_strides, match_strides

_ADD = "aten.add.Tensor"
_SELECT, _SLICE = "aten.select_backward.default", "aten.slice_backward.default"
_RULE = "parts"


@dataclass(frozen=True, slots=True)
class _Part:
    """Gradient of a slice of a tensor, padded with zeros to the size of the tensor."""

    node: OpNode  # the node that computes it
    grad: Value  # the gradient of the slice; of a select, without the axis ``dim``
    dim: int  # the axis of the slice
    start: int  # its first index there
    stop: int  # the index after its last one


class GatherGradients(Pass):
    """Concatenate the gradients of slices of a tensor instead of summing them, each padded with zeros.

    The gradient of ``x[:, 0]``, ``x[:, 1]``, ... is the sum of as many tensors as there are indices, each
    as large as ``x``, so the work is quadratic. The slices do not overlap, so one ``cat`` of their
    gradients is that sum. Zeros fill the gaps; at most one other gradient may be in the sum, and is added
    to the whole.

    Results are equal, except that -0.0 in a gradient stays -0.0, where a sum with zeros gives 0.0.
    """

    name = "gather-gradients"
    is_idempotent = True
    after = ("canonicalize", "elim-identity", "cse", "dead-code")

    def run(self, graph: Graph) -> bool:
        """Join gradients in one backward sweep, so that each sum is seen as a whole first."""
        before = graph.edits
        seen: set[OpNode] = set()
        for node in reversed(graph.body):
            if node.op_type == _ADD and node not in seen and not node.is_erased:
                sums, terms = _sum_of(node)
                seen.update(sums)
                self._join(graph, sums, terms)
        return graph.edits != before

    def _join(self, graph: Graph, sums: Sequence[OpNode], terms: Sequence[Value]) -> None:
        parts = [_part(value) for value in terms]
        joined = sorted((part for part in parts if part is not None), key=lambda part: part.start)
        others = [value for value, part in zip(terms, parts, strict=True) if part is None]
        if len(joined) < 2:
            return
        root = sums[0]
        reason = _obstacle(graph, root, joined, others)
        if reason is not None:
            self.refuse(root, reason, _RULE)
            return
        nodes = [*(part.node for part in joined), *reversed(sums)]
        with self.rewrite(graph, _RULE, *nodes) as edit:
            whole = _concatenate(edit, joined, root.outputs[0].tensor_type)
            if others:
                whole = edit.call(_ADD, others[0], whole)
            edit.replace(root.outputs[0], match_strides(edit, whole, root.outputs[0]))


def _sum_of(root: OpNode) -> tuple[list[OpNode], list[Value]]:
    """Return the nodes of a sum of several terms, the last node first, and its terms."""
    sums, terms, pending = [], [], [root.outputs[0]]
    while pending:
        value = pending.pop()
        node = value.producer
        # A partial sum with other readers stays in the graph, so it is a term.
        is_inner = value.use_count == 1 or node is root
        if node is not None and node.op_type == _ADD and is_inner and _is_plain_sum(node):
            sums.append(node)
            pending += reversed(node.inputs)
        else:
            terms.append(value)
    return sums or [root], terms


def _is_plain_sum(node: OpNode) -> bool:
    """Return whether a sum is of two tensors of its own type, and scales neither."""
    return (
        len(node.inputs) == 2
        and not node.attrs
        and not node.in_prologue
        and isinstance(node.outputs[0].type, TensorType)
        and all(node.outputs[0].type.same_shape_and_dtype(value.type) for value in node.inputs)
    )


def _part(value: Value) -> _Part | None:
    """Return the part for a zero-padded gradient with a single reader; None for other values."""
    node = value.producer
    if node is None or node.op_type not in (_SELECT, _SLICE) or value.use_count != 1 or len(node.inputs) != 1:
        return None
    arguments = arguments_of(node, defaults=True)
    shape = value.tensor_type.shape
    dim = arguments["dim"] % len(shape)
    size = shape[dim]
    if not isinstance(size, int):
        return None
    if node.op_type == _SELECT:
        start = arguments["index"] % size
        return _Part(node, node.inputs[0], dim, start, start + 1)
    if arguments["step"] != 1:
        return None
    start, stop, _ = slice(arguments["start"], arguments["end"]).indices(size)
    return _Part(node, node.inputs[0], dim, start, stop)


def _obstacle(graph: Graph, root: OpNode, parts: Sequence[_Part], others: Sequence[Value]) -> str | None:
    """Return the reason why the parts of a sum cannot be joined; None if they can."""
    if len(others) > 1:
        return "it adds more than one gradient of the whole: they would be added in another order"
    if len({part.dim for part in parts}) > 1:
        return "its parts are cut along several axes"
    for part, following in itertools.pairwise(parts):
        if following.start < part.stop:
            return f"{part.node.name} and {following.node.name} overlap"
    type = root.outputs[0].tensor_type
    if type.symbols:
        return f"the sizes of {type} are open"
    joined = TensorType(type.shape, type.dtype)
    return None if can_convert_strides(joined, type, graph.symbols) else f"it has the layout of {type}"


def _concatenate(edit: Edit, parts: Sequence[_Part], type: TensorType) -> Value:
    """Return the parts concatenated along their axis, with zeros in the gaps."""
    dim, size = parts[0].dim, type.static_shape[parts[0].dim]
    if len(parts) == size and all(part.node.op_type == _SELECT for part in parts):
        return edit.call("aten.stack.default", [part.grad for part in parts], dim)
    pieces: list[Value] = []
    end = 0
    for part in parts:
        pieces += _zeros(edit, parts[0].grad, type, dim, part.start - end)
        is_selected = part.node.op_type == _SELECT
        pieces.append(edit.call("aten.unsqueeze.default", part.grad, dim) if is_selected else part.grad)
        end = part.stop
    pieces += _zeros(edit, parts[0].grad, type, dim, size - end)
    return edit.call("aten.cat.default", pieces, dim)


def _zeros(edit: Edit, like: Value, type: TensorType, dim: int, count: int) -> list[Value]:
    """Return a tensor of zeros for ``count`` indices of an axis, on the device of ``like``; empty for 0."""
    if count == 0:
        return []
    sizes = [count if axis == dim else size for axis, size in enumerate(type.static_shape)]
    return [edit.call("aten.new_zeros.default", like, sizes)]
