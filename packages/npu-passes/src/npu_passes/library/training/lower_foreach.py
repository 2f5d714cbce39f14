"""One node per tensor in place of ops on lists of tensors."""

from __future__ import annotations

from npu_ir import Graph
from npu_passes.core.base import Pass
from npu_passes.decomposition.expansion import expansion
from npu_passes.decomposition.inline import inline
from npu_passes.errors import PassError

_RULE = "per-tensor"


class LowerForeach(Pass):
    """Replace ``aten._foreach_*`` ops by the ops they stand for, one call per tensor of the lists.

    PyTorch's kernel for any device says which these are. Where a result depends on numbers that are the content of a
    tensor (``_foreach_addcmul.Tensor``) the op stays, and the pass says so.
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
                    found = expansion(node, part.symbols, per_tensor=True)
                except PassError as error:
                    self.refuse(node, error.message, rule=_RULE)
                    continue
                with self.rewrite(part, _RULE, node) as edit:
                    inline(edit, node, found)
                changed = True
        return changed
