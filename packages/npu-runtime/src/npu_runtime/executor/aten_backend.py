"""The backend that is always there: PyTorch's own ops, as straight-line Python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from npu_ir import Graph, OpNode
from npu_ir.plugins.backend import Backend, BackendOp
from npu_runtime.executor.executor import IRExecutor


class AtenBackend(Backend):
    """Runs every node, as PyTorch does; whatever the others refuse."""

    name = "aten"

    def devices(self) -> Sequence[torch.device]:
        found = [torch.device("cpu")]
        if torch.cuda.is_available():
            found += [torch.device("cuda", index) for index in range(torch.cuda.device_count())]
        return found

    def supports(self, node: OpNode) -> str | None:  # noqa: ARG002 - it takes every node
        return None

    def lower(self, graph: Graph) -> Sequence[BackendOp]:
        return [BackendOp(node.op_type, node.inputs, node.outputs, (node,)) for node in graph.nodes]

    def prepare(self, graph: Graph, ops: Sequence[BackendOp], device: torch.device) -> Any:  # noqa: ARG002
        return IRExecutor(graph, device=device, passes=None)

    def run(self, program: Any, inputs: Sequence[Any]) -> Sequence[Any]:
        return list(program.run_flat(inputs)[0])
