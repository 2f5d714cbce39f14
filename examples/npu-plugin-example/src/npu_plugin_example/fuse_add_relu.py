"""Fusion of an addition and the relu that reads it."""

from __future__ import annotations

from npu_ir import Graph, OpNode
from npu_passes import Pass


class FuseAddRelu(Pass):
    """Fuse ``relu(x + y)`` into one op.

    Attributes:
        min_elements: Leave results with fewer elements as they are.
    """

    name = "npu-plugin-example-fuse-add-relu"
    is_idempotent = True
    min_elements: int = 0

    def run(self, graph: Graph) -> bool:
        edited = False
        for relu in list(graph.nodes_of("aten.relu.default")):
            add = relu.inputs[0].producer
            if add is None or relu.in_prologue or not is_sum(add):
                continue
            if len(add.outputs[0].uses) > 1:
                self.refuse(relu, f"%{add.name} is read elsewhere, too")
                continue
            numel = relu.outputs[0].tensor_type.numel
            if self.min_elements and not (isinstance(numel, int) and numel >= self.min_elements):
                self.refuse(relu, f"it has {numel} elements, fewer than {self.min_elements}")
                continue
            with self.rewrite(graph, "add-relu", add, relu) as edit:
                fused = edit.call("npu_plugin_example.add_relu.default", *add.inputs)
                edit.replace(relu.outputs[0], fused)
            edited = True
        return edited


def is_sum(node: OpNode) -> bool:
    """Return whether a node adds two tensors, without scaling one of them."""
    scale = node.attrs.get("alpha", 1)
    return node.op_type == "aten.add.Tensor" and len(node.inputs) == 2 and scale == 1
