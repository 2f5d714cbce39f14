"""Fusion of the gradients of a linear layer and of the activation after it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from npu_ir import Graph, OpNode, ScalarType, TensorType, Value
from npu_passes.core.base import Pass
from npu_passes.core.edit import Edit
from npu_passes.ops.fused import LINEAR_ACTIVATION_BACKWARD, LINEAR_BACKWARD
from npu_passes.rewriting.arguments import arguments_of
from npu_passes.rewriting.axes import PERMUTING, permutation
from npu_passes.rewriting.value_replacement import equals_up_to_strides

_MM, _SUM, _RESHAPE = "aten.mm.default", "aten.sum.dim_IntList", "aten.reshape.default"
_RULE = "linear-backward"
_NONE = ScalarType("none")


_RELU = "aten.threshold_backward.default"  # where the threshold is 0
_GRADIENTS: Mapping[str, str] = {
    _RELU: "relu",
    **{f"aten.{name}_backward.default": name for name in ("gelu", "sigmoid", "silu", "tanh")},
}


@dataclass(frozen=True, slots=True)
class _Group:
    """Nodes that compute the gradients of one linear layer."""

    grad: Value  # the gradient of the output of the layer, [rows, out]
    input: Value  # [rows, in]
    weight: Value | None  # [out, in]; None if the gradient of the input is not computed
    for_input: OpNode | None  # ``mm(grad, weight)``
    for_weight: OpNode  # ``mm(grad transposed, input)``
    for_bias: OpNode | None  # ``sum(grad, [0])``

    @property
    def products(self) -> tuple[OpNode | None, OpNode, OpNode | None]:
        return self.for_input, self.for_weight, self.for_bias

    @property
    def nodes(self) -> list[OpNode]:
        return [node for node in self.products if node is not None]


class FuseLinearBackward(Pass):
    """Fuse the gradients of a linear layer into ``npu::linear_backward``, for backends that run them as one.

    1. ``mm(grad, weight)``, ``mm(grad transposed, input)`` and ``sum(grad, [0])`` of one gradient become
       one op; at least two of them must be present, the second included.
    2. If they are the only readers of the gradient, and it is computed by the backward op of a relu, gelu,
       sigmoid, silu or tanh, the op is ``npu::linear_activation_backward``.

    The arithmetic stays the same. There is no gain on the CPU: BLAS already computes these products best.
    """

    name = "fuse-linear-backward"
    is_idempotent = True
    after = ("canonicalize", "elim-identity", "cse", "dead-code")

    def run(self, graph: Graph) -> bool:
        """Fuse groups of gradients in one forward sweep."""
        before = graph.edits
        places = {node: index for index, node in enumerate(graph.nodes)}
        for node in graph.body:
            group = None if node.is_erased else _group(node)
            if group is not None:
                self._fuse(graph, group, places)
        return graph.edits != before

    def _fuse(self, graph: Graph, group: _Group, places: dict[OpNode, int]) -> None:
        # The fused op takes the place of the first product, in front of all readers: its inputs must be
        # known there.
        first = min(group.nodes, key=places.__getitem__)
        for value in (group.input, group.weight):
            if value is not None and value.producer is not None and places[value.producer] > places[first]:
                self.refuse(group.for_weight, f"%{value.name} is computed after {first.name!r}", _RULE)
                return
        activation = _activation(group)
        inner = [] if activation is None else [group.grad.producer]
        views = [
            *_transpositions_of(group.grad),
            *(_vector_reshapes(group.for_bias) if group.for_bias else ()),
        ]
        others = sorted((node for node in group.nodes if node is not first), key=places.__getitem__)
        nodes = [node for node in (*inner, *views, *others, first) if node is not None]
        with self.rewrite(graph, _RULE, *nodes) as edit:
            made = _call_fused(edit, group, activation)
            _replace(edit, group, made)
        producer = next(value.producer for value in made if value.producer is not None)
        places[producer] = places[first]


def _group(node: OpNode) -> _Group | None:
    """Return the group around ``node``, the gradient of a weight; None if it is something else, or alone."""
    if node.op_type != _MM:
        return None
    grad, input = _transposition_input(node.inputs[0]), node.inputs[1]
    if grad is None:
        return None
    users = [user for user, _ in grad.uses if user is not None and user.graph is node.graph]
    shape = (grad.tensor_type.shape[1], input.tensor_type.shape[1])
    products = [
        user
        for user in users
        if user.op_type == _MM and user.inputs[0] is grad and user.inputs[1].tensor_type.shape == shape
    ]
    sums = [user for user in users if _sums_rows(user)]
    if not products and not sums:
        return None
    # Layers may share a gradient (behind a residual sum): prefer the weight that the forward pass
    # multiplies with input.
    product = next((item for item in products if _is_weight_of(item.inputs[1], input)), None) or next(
        iter(products), None
    )
    return _Group(
        grad, input, product.inputs[1] if product else None, product, node, sums[0] if sums else None
    )


def _transposition_input(value: Value) -> Value | None:
    """Return the matrix that ``value`` transposes; None if it is not a transpose."""
    node = value.producer
    if node is None or node.op_type not in PERMUTING or node.in_prologue or permutation(node) != (1, 0):
        return None
    return node.inputs[0]


def _transpositions_of(grad: Value) -> Iterator[OpNode]:
    for node, _ in grad.uses:
        if node is not None and node.op_type in PERMUTING and permutation(node) == (1, 0):
            yield node


def _is_weight_of(weight: Value, input: Value) -> bool:
    """Return whether the forward pass multiplies ``input`` by the transpose of ``weight``."""
    readers = {node for node, _ in input.uses}
    return any(
        not readers.isdisjoint(user for user, _ in node.outputs[0].uses)
        for node in _transpositions_of(weight)
    )


def _sums_rows(node: OpNode) -> bool:
    given = arguments_of(node) if node.op_type == _SUM else {}
    return given.get("dim") == [0] and given.get("dtype") is None


def _vector_reshapes(node: OpNode) -> list[OpNode]:
    """Return the nodes that reshape a sum of shape [1, out] to a vector."""
    size = node.outputs[0].tensor_type.shape[-1:]
    users = [user for user, _ in node.outputs[0].uses if user is not None]
    return [user for user in users if user.op_type == _RESHAPE and user.outputs[0].tensor_type.shape == size]


def _activation(group: _Group) -> str | None:
    """Return the activation whose gradient only the group reads; None if there is none."""
    node = group.grad.producer
    if node is None or node.op_type not in _GRADIENTS or node.in_prologue:
        return None
    if node.op_type == _RELU and node.attrs.get("threshold") != 0:
        return None
    if not all(equals_up_to_strides(value.type, group.grad.type) for value in node.inputs):
        return None
    readers = {*group.nodes, *_transpositions_of(group.grad)}
    if any(user not in readers for user, _ in group.grad.uses):
        return None
    if any(
        user is not group.for_weight
        for view in _transpositions_of(group.grad)
        for user, _ in view.outputs[0].uses
    ):
        return None
    return "gelu_tanh" if node.attrs.get("approximate") == "tanh" else _GRADIENTS[node.op_type]


def _call_fused(edit: Edit, group: _Group, activation: str | None) -> tuple[Value, ...]:
    mask = [node is not None for node in group.products]
    types = [_NONE if node is None else node.outputs[0].type for node in group.products]
    if group.for_bias is not None:
        row = group.for_bias.outputs[0].tensor_type
        types[2] = TensorType(row.shape[-1:], row.dtype)
    if activation is None:
        return edit.calls(LINEAR_BACKWARD, group.grad, group.input, group.weight, mask, types=types)
    assert group.grad.producer is not None
    grad, saved = group.grad.producer.inputs
    return edit.calls(
        LINEAR_ACTIVATION_BACKWARD, grad, saved, group.input, group.weight, mask, activation, types=types
    )


def _replace(edit: Edit, group: _Group, made: tuple[Value, ...]) -> None:
    for node, value in zip(group.products[:2], made[:2], strict=True):
        if node is not None:
            edit.replace(node.outputs[0], value)
    if group.for_bias is None:
        return
    for vector in _vector_reshapes(group.for_bias):
        edit.replace(vector.outputs[0], made[2])
        edit.erase(vector)
    row = group.for_bias.outputs[0]
    if row.use_count:
        shaped = (
            made[2] if row.tensor_type.rank == 1 else edit.call(_RESHAPE, made[2], [1, -1], type=row.type)
        )
        edit.replace(row, shaped)
