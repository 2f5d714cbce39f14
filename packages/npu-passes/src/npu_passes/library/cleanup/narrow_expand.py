"""Elementwise computation before an expand instead of after it."""

from __future__ import annotations

import math

import torch

from npu_ir import Graph, OpNode, TensorType, Value
from npu_ir.ops.effects import is_pure
from npu_ir.ops.schema import find_op
from npu_passes._torch import OpOverload
from npu_passes.core.base import Pass
from npu_passes.rewriting.arguments import arguments_of
from npu_passes.rewriting.value_replacement import match_strides

_EXPAND, _COPY = "aten.expand.default", "aten.clone.default"


class NarrowExpand(Pass):
    """Move elementwise ops of one tensor in front of its expand, where they compute fewer elements.

    The gradient of a mean, for example, is expanded to the size of the input of the mean and then divided
    by its number of elements: this pass divides first. Static sizes only.
    """

    name = "narrow-expand"
    is_idempotent = True
    after = ("canonicalize",)

    def run(self, graph: Graph) -> bool:
        before = graph.edits
        for node in graph.body:
            narrow = _expand_input(node)
            if narrow is not None:
                self._move_before_expand(graph, node, narrow)
        return graph.edits != before

    def _move_before_expand(self, graph: Graph, node: OpNode, narrow: Value) -> None:
        wide = node.outputs[0]
        with self.rewrite(graph, "compute first", node) as edit:
            arguments = arguments_of(node)
            (name,) = (name for name, item in arguments.items() if isinstance(item, Value))
            result = edit.call(node.op_type, **{**arguments, name: narrow})
            expanded = edit.call(_EXPAND, result, list(wide.tensor_type.static_shape))
            edit.replace(wide, match_strides(edit, expanded, wide))


def _expand_input(node: OpNode) -> Value | None:
    """Return the tensor before its expand that a node can be computed on; None if there is none."""
    if len(node.inputs) != 1 or len(node.outputs) != 1 or not _is_elementwise(node):
        return None
    expand = node.inputs[0].producer
    if expand is None or expand.op_type != _EXPAND or expand.in_prologue:
        return None
    narrow, wide = expand.inputs[0].type, node.outputs[0].type
    if (
        not (isinstance(narrow, TensorType) and isinstance(wide, TensorType))
        or narrow.symbols
        or wide.symbols
    ):
        return None
    return expand.inputs[0] if math.prod(narrow.static_shape) < math.prod(wide.static_shape) else None


def _is_elementwise(node: OpNode) -> bool:
    op = find_op(node.op_type)
    is_pointwise = isinstance(op, OpOverload) and torch.Tag.pointwise in op.tags
    return is_pointwise and is_pure(node) and node.op_type != _COPY  # a clone materializes the expand
