"""Attention of grouped heads without repeated keys and values."""

from __future__ import annotations

from npu_ir import Graph, OpNode, Value
from npu_passes.core.base import Pass, within
from npu_passes.rewriting.arguments import arguments_of
from npu_passes.rewriting.value_replacement import match_strides

_ATTENTION = "aten.scaled_dot_product_attention.default"
_RESHAPES = ("aten.reshape.default", "aten.view.default", "aten._unsafe_view.default")
_RULE = "group-heads"


class GroupHeads(Pass):
    """Have ``aten.scaled_dot_product_attention`` read grouped keys and values as they are.

    Models with fewer heads of keys and values than of queries (grouped-query attention) repeat each of them
    for the queries of its group: ``unsqueeze``, ``expand`` and ``reshape``, which copies a whole cache in
    each call. With ``enable_gqa`` the op takes them unrepeated. Results may differ by rounding, where PyTorch
    has another kernel for that.
    """

    name = "group-heads"
    is_idempotent = True
    numerics = within(1e-5)

    def run(self, graph: Graph) -> bool:
        """Try each attention."""
        edited = False
        for node in graph.nodes_of(_ATTENTION):
            if not node.in_prologue:
                edited |= self._group(graph, node)
        return edited

    def _group(self, graph: Graph, node: OpNode) -> bool:
        arguments = arguments_of(node, defaults=True)
        key, value = _repeated(arguments["key"]), _repeated(arguments["value"])
        if key is None or value is None or arguments["enable_gqa"]:
            return False
        if key.tensor_type.shape[:2] != value.tensor_type.shape[:2]:
            self.refuse(node, f"%{key.name} and %{value.name} have other heads", _RULE)
            return False
        old = node.outputs[0]
        with self.rewrite(graph, _RULE, node) as edit:
            new = edit.call(_ATTENTION, **{**arguments, "key": key, "value": value, "enable_gqa": True})
            edit.replace(old, match_strides(edit, new, old))
        return True


def _repeated(value: Value) -> Value | None:
    """Return the tensor [batch, groups, rows, size] whose heads a value repeats; None if it repeats none."""
    merged = value.producer
    if merged is None or merged.op_type not in _RESHAPES:
        return None
    repeated = merged.inputs[0].producer
    if repeated is None or repeated.op_type != "aten.expand.default":
        return None
    split = repeated.inputs[0].producer
    if split is None or split.op_type != "aten.unsqueeze.default":
        return None
    source, wide = split.inputs[0], repeated.outputs[0].tensor_type.shape
    narrow = split.outputs[0].tensor_type.shape
    if len(wide) != 5 or source.tensor_type.rank != 4:
        return None
    batch, groups, rows, size = source.tensor_type.shape
    is_repeated = narrow == (batch, groups, 1, rows, size) and wide == (batch, groups, wide[2], rows, size)
    is_merged = value.tensor_type.shape == (batch, groups * wide[2], rows, size)
    return source if is_repeated and is_merged else None
