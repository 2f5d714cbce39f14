"""Lowering of ops on lists of tensors to one op per tensor."""

from __future__ import annotations

from npu_ir import Graph
from npu_passes.core.base import Pass
from npu_passes.decomposition.expansion import expand
from npu_passes.decomposition.recorded_calls import inline
from npu_passes.errors import PassError

_RULE = "per-tensor"


class LowerForeach(Pass):
    """Replace ``aten._foreach_*`` ops by equivalent ops on single tensors, one call per tensor of the lists.

    The ops are those that PyTorch's device-independent kernel calls. An op that reads numbers from the
    content of a tensor (``_foreach_addcmul.Tensor``) stays, and the pass reports a refusal.
    """

    name = "lower-foreach"
    is_idempotent = True
    before = ("constant-folding",)

    def run(self, graph: Graph) -> bool:
        changed = False
        for part in list(graph.graphs()):
            for node in part.nodes:
                if not node.op_type.startswith("aten._foreach_"):
                    continue
                try:
                    expanded = expand(node, part.symbols, per_tensor=True)
                except PassError as error:
                    self.refuse(node, error.message, rule=_RULE)
                    continue
                with self.rewrite(part, _RULE, node) as edit:
                    inline(edit, node, expanded)
                changed = True
        return changed
