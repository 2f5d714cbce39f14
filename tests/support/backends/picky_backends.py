"""Two backends that take some ops each, and a model with nodes for both."""

from collections.abc import Sequence

import torch

from npu_ir import Graph, OpNode
from npu_runtime import BackendOp
from tests.support.backends.broken_backends import Sound


class Picky(Sound):
    """Takes linear layers and relu."""

    name = "picky"

    def supports(self, node: OpNode) -> str | None:
        known = ("aten.linear.default", "aten.relu.default")
        return None if node.op_type in known else f"no kernel for {node.op_type}"

    def lower(self, graph: Graph) -> Sequence[BackendOp]:
        return [
            BackendOp(
                "gemm" if "linear" in node.name else "relu",
                node.inputs,
                node.outputs,
                (node,),
                f"{node.name}_f32",
            )
            for node in graph.nodes
        ]


class Smooth(Sound):
    name = "smooth"

    def devices(self) -> Sequence[torch.device]:
        return []

    def supports(self, node: OpNode) -> str | None:
        return None if node.op_type == "aten.sigmoid.default" else "it is not smooth"


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(3, 4), torch.nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.second(torch.sigmoid(self.first(x + 1))))
