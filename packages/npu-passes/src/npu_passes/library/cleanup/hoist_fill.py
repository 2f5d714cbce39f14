"""Creation of filled tensors independent of other tensors."""

from __future__ import annotations

from typing import Any

import torch

from npu_ir import Graph, OpNode, TensorType
from npu_passes.core.base import Pass
from npu_passes.rewriting.arguments import arguments_of

# By op: the fill value, or the argument that is the fill value.
_FILLS: dict[str, float | str] = {
    "aten.ones_like.default": 1,
    "aten.zeros_like.default": 0,
    "aten.full_like.default": "fill_value",
    "aten.new_ones.default": 1,
    "aten.new_zeros.default": 0,
    "aten.new_full.default": "fill_value",
    "aten.fill.Scalar": "value",
    "aten.zero.default": 0,
}
_EMPTY = "aten.empty_like.default"


class HoistFill(Pass):
    """Make tensors filled with one number independent of other tensors.

    1. ``ones_like``, ``zeros_like``, ``full_like`` and the like become ``full``, where the size is static
       and the tensor is contiguous. `constant-folding` then moves it out of the calls; the initial gradient
       of a loss is such a tensor of ones.
    2. ``empty_like`` of a tensor of the same type is replaced by the tensor itself, as its contents are
       undefined.

    Results of the graph stay, because every call returns new memory.
    """

    name = "hoist-fill"
    is_idempotent = True
    before = ("constant-folding",)

    def run(self, graph: Graph) -> bool:
        before = graph.edits
        for node in graph.nodes_of(_EMPTY, *_FILLS):
            if node.in_prologue or not node.outputs[0].uses:
                continue
            problem = _problem(node)
            if problem is not None:
                self.refuse(node, problem, "fill")
            elif node.op_type == _EMPTY:
                with self.rewrite(graph, "empty", node) as edit:
                    edit.replace(node.outputs[0], node.inputs[0])
            else:
                self._fill(graph, node)
        return graph.edits != before

    def _fill(self, graph: Graph, node: OpNode) -> None:
        type = node.outputs[0].tensor_type
        with self.rewrite(graph, "fill", node) as edit:
            # On meta: the device is inferred when the graph is run.
            full = edit.call(
                "aten.full.default",
                list(type.static_shape),
                _number(node),
                type=type,
                dtype=type.dtype,
                device=torch.device("meta"),
            )
            edit.replace(node.outputs[0], full)


def _problem(node: OpNode) -> str | None:
    """Return the reason why a node depends on its input tensor; None if it does not."""
    result = node.outputs[0]
    if result.is_output:
        return "the graph returns it"
    if node.op_type == _EMPTY:
        given = node.inputs[0].type
        return None if given == result.type else f"it makes {result.type} of {given}"
    if not isinstance(result.type, TensorType) or result.type.symbols:
        return f"its size is open: {result.type}"
    if result.type.strides is not None or result.type.layout is not torch.strided:
        return f"it is not contiguous: {result.type}"
    if any(isinstance(item, torch.device) for item in node.attrs.values()):
        return "it names a device"
    return None if type(_number(node)) in (int, float, bool) else "its fill value is known only in a call"


def _number(node: OpNode) -> Any:
    known = _FILLS[node.op_type]
    return arguments_of(node)[known] if isinstance(known, str) else known
