"""Fusion of a residual sum with the norm after it."""

from __future__ import annotations

from typing import Any

from npu_ir import Graph, OpNode, Value
from npu_passes.core.base import Pass, within
from npu_passes.core.edit import merge_provenance
from npu_passes.ops.fused import ADD_LAYER_NORM, ADD_RMS_NORM
from npu_passes.rewriting.arguments import arguments_of
from npu_passes.rewriting.value_replacement import equals_up_to_strides, match_strides

_NORMS = {"aten.layer_norm.default": ADD_LAYER_NORM, "aten.rms_norm.default": ADD_RMS_NORM}
_ARGUMENTS = ("normalized_shape", "weight", "bias", "eps")
_RULE = "add-norm"


class FuseAddNorm(Pass):
    """Fuse ``norm(x + residual)`` into ``npu::add_layer_norm`` or ``npu::add_rms_norm``.

    The norm is ``aten.layer_norm`` or ``aten.rms_norm``, of a sum of two tensors of one type. The fused ops
    return the sum, too, which may have other readers.
    """

    name = "fuse-add-norm"
    after = ("fuse-rms-norm",)
    numerics = within(1e-5)

    def run(self, graph: Graph) -> bool:
        """Fuse sums with norms."""
        edited = False
        for node in graph.nodes_of(*_NORMS):
            if not node.in_prologue:
                edited |= self._fuse(graph, node)
        return edited

    def _fuse(self, graph: Graph, norm: OpNode) -> bool:
        arguments = arguments_of(norm, defaults=True)
        add = arguments["input"].producer
        if add is None or add.op_type != "aten.add.Tensor" or add.in_prologue:
            return False
        total = add.outputs[0]
        # Other nodes may read the sum before the norm does: then the fused op takes the place of the sum.
        is_at_sum = total.use_count > 1
        reason = (
            _sum_problem(arguments_of(add, defaults=True), total)
            or (is_at_sum and _availability_problem(arguments))
            or None
        )
        if reason is not None:
            self.refuse(norm, reason, _RULE)
            return False
        with self.rewrite(graph, _RULE, *((norm, add) if is_at_sum else (add, norm))) as edit:
            names = [name for name in _ARGUMENTS if name in arguments]
            results = edit.calls(_NORMS[norm.op_type], *add.inputs, *map(arguments.__getitem__, names))
            for old, new in ((norm.outputs[0], results[0]), (total, results[1])):
                edit.replace(old, match_strides(edit, new, old))
            for name in edit.made:
                graph.set_provenance(graph.node(name), merge_provenance([add, norm]))
        return True


def _sum_problem(arguments: dict[str, Any], total: Value) -> str | None:
    """Return the reason why a sum cannot be fused with a norm; None if it can."""
    parts = arguments["self"], arguments["other"]
    if not all(isinstance(part, Value) for part in parts) or arguments["alpha"] != 1:
        return "the sum is not one of two tensors, or scales one"
    for part in parts:
        if not equals_up_to_strides(part.type, total.type):
            return f"the sum broadcasts or promotes %{part.name}, {part.type}, to {total.type}"
    return None


def _availability_problem(arguments: dict[str, Any]) -> str | None:
    """Return the reason why an argument of a norm may be unavailable at its sum; None if none is."""
    for name in ("weight", "bias"):
        value = arguments.get(name)
        if isinstance(value, Value) and not (value.producer is None or value.producer.in_prologue):
            return f"its {name} is computed at each call, maybe after the sum"
    return None
