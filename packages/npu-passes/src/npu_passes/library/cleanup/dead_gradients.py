"""Dead gradient elimination."""

from __future__ import annotations

from npu_ir import Graph, OpNode
from npu_ir.ops.effects import is_pure
from npu_ir.ops.schema import find_op
from npu_passes.core.base import Pass
from npu_passes.rewriting.arguments import arguments_of

# Arguments of backward ops that select the results to compute.
_MASKS = ("output_mask", "grad_input_mask")


class DeadGradients(Pass):
    """Remove gradients that no update, no result and no other gradient needs.

    1. A backward op with a mask of the gradients to compute - of convolutions, batch, layer and group
       norms, attention - computes only those that are read: ``output_mask`` is false for the rest, and the
       op returns None there.
    2. Nodes without readers are removed, and then nodes that only they read, such as the sum that is the
       gradient of an absent bias.

    Nodes that draw random numbers or have effects stay.
    """

    name = "dead-gradients"
    is_idempotent = True

    def run(self, graph: Graph) -> bool:
        """Remove and narrow nodes in one backward sweep."""
        before = graph.edits
        for node in reversed(graph.body):
            if any(value.uses for value in node.outputs):
                self._narrow(graph, node)
            elif is_pure(node) and not any(value.type.symbols for value in node.outputs):
                with self.rewrite(graph, "unread node", node):
                    pass
        return graph.edits != before

    def _narrow(self, graph: Graph, node: OpNode) -> None:
        """Mask the results of a backward op that have no readers."""
        name = next((name for name in _MASKS if name in node.attrs), None)
        mask = None if name is None else node.attrs[name]
        if name is None or not isinstance(mask, list) or len(mask) != len(node.outputs):
            return
        needed = [bool(on and value.uses) for on, value in zip(mask, node.outputs, strict=True)]
        if needed == mask or find_op(node.op_type) is None:
            return
        with self.rewrite(graph, "unread gradient", node) as edit:
            results = edit.calls(node.op_type, **{**arguments_of(node), name: needed})
            for old, new in zip(node.outputs, results, strict=True):
                if old.uses:
                    edit.replace(old, new)
