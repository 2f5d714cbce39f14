"""Do not compute gradients that nothing reads."""

from __future__ import annotations

from npu_ir import Graph, OpNode
from npu_ir.ops.effects import is_pure
from npu_ir.ops.schema import find_op, schema_of
from npu_passes.core.base import Pass
from npu_passes.rewriting.arguments import arguments_of

# Arguments of backward ops that say which results to compute.
_MASKS = ("output_mask", "grad_input_mask")


class DeadGradients(Pass):
    """Leave out gradients that no update, no result and no other gradient needs.

    1. A backward op that is told which gradients to compute - of convolutions, batch, layer and group norms, attention -
       computes no others than those that are read: ``output_mask`` is off for the rest, and the op returns None there.
    2. Nodes that nothing reads go, and then what only they read: the sum that is the gradient of a bias nobody has.

    Nodes that draw random numbers or have effects stay.
    """

    name = "dead-gradients"
    is_idempotent = True

    def run(self, graph: Graph) -> bool:
        """Go through the nodes once, from the last to the first."""
        before = graph.edits
        for node in reversed(graph.body):
            if not any(value.uses for value in node.outputs):
                self._remove(graph, node)
            else:
                self._narrow(graph, node)
        return graph.edits != before

    def _remove(self, graph: Graph, node: OpNode) -> None:
        if is_pure(node) and not any(value.type.symbols for value in node.outputs):
            with self.rewrite(graph, "unread node", node):
                pass

    def _narrow(self, graph: Graph, node: OpNode) -> None:
        """Turn off the results that nothing reads."""
        name = next((name for name in _MASKS if name in node.attrs), None)
        mask = None if name is None else node.attrs[name]
        if name is None or not isinstance(mask, list) or len(mask) != len(node.outputs):
            return
        needed = [bool(on and value.uses) for on, value in zip(mask, node.outputs, strict=True)]
        op = find_op(node.op_type)
        if needed == mask or op is None:
            return
        args = {**arguments_of(node), name: needed}
        positional = [args[arg.name] for arg in schema_of(op).args if arg.name in args and not arg.kwarg_only]
        with self.rewrite(graph, "unread gradient", node) as edit:
            made = edit.calls(node.op_type, *positional)
            for old, new in zip(node.outputs, made, strict=True):
                if old.uses:
                    edit.replace(old, new)
