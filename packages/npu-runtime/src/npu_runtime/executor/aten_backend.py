"""The built-in backend: PyTorch's own ops, called from straight-line Python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from npu_ir import Graph, OpNode
from npu_ir.plugins.backend import Backend, BackendOp
from npu_passes import all_pipelines
from npu_passes.manager.statistics import FlopCounter, estimate_seconds
from npu_runtime.executor.executor import IRExecutor


class AtenBackend(Backend):
    """Backend of last resort: it runs every node, with PyTorch's own ops."""

    name = "aten"

    def __init__(self) -> None:
        self._flops = FlopCounter()  # one for all graphs: models repeat their layers

    def devices(self) -> Sequence[torch.device]:
        devices = [torch.device("cpu")]
        if torch.cuda.is_available():
            devices += [torch.device("cuda", index) for index in range(torch.cuda.device_count())]
        return devices

    def supports(self, node: OpNode) -> str | None:  # noqa: ARG002 - every node is supported
        return None

    def cost(self, node: OpNode) -> float | None:
        return estimate_seconds(node, self._flops)

    def pipeline(self, device: torch.device) -> str:
        return "cpu" if device.type == "cpu" and "cpu" in all_pipelines() else "default"

    def training_pipeline(self, device: torch.device) -> str:
        return "train-cpu" if device.type == "cpu" and "train-cpu" in all_pipelines() else "train"

    def lower(self, graph: Graph) -> Sequence[BackendOp]:
        return [BackendOp(node.op_type, node.inputs, node.outputs, (node,)) for node in graph.nodes]

    def prepare(self, graph: Graph, ops: Sequence[BackendOp], device: torch.device) -> Any:  # noqa: ARG002
        return IRExecutor(graph, device=device, passes=None)

    def run(self, program: Any, inputs: Sequence[Any]) -> Sequence[Any]:
        return list(program.run_flat(inputs)[0])
