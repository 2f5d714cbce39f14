"""The built-in backend: PyTorch's own ops, called from straight-line Python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from npu_ir import Graph, OpNode
from npu_ir.core.storage import span_bytes
from npu_ir.ops.effects import is_view
from npu_ir.plugins.backend import Backend, BackendOp
from npu_passes import all_pipelines
from npu_passes.manager.statistics import FlopCounter
from npu_runtime.executor.executor import IRExecutor

# Of one core of an x86 CPU of the last ten years, data in the cache, within a factor of three: the seconds of
# a call from Python, the bytes and the floating-point operations (float32) per second.
_CALL, _BYTES, _FLOPS = 1e-6, 2e10, 1e11


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
        """Return an estimate for one core of a CPU; None if sizes are symbolic, or a node has regions."""
        values = (*node.inputs, *node.outputs)
        if node.regions or any(value.type.symbols for value in values):
            return None
        if is_view(node):
            return _CALL
        traffic = sum(span_bytes(value.type) for value in dict.fromkeys(values))
        return _CALL + max(traffic / _BYTES, (self._flops(node) or 0) / _FLOPS)

    def pipeline(self, device: torch.device) -> str:
        return "cpu" if device.type == "cpu" and "cpu" in all_pipelines() else "default"

    def lower(self, graph: Graph) -> Sequence[BackendOp]:
        return [BackendOp(node.op_type, node.inputs, node.outputs, (node,)) for node in graph.nodes]

    def prepare(self, graph: Graph, ops: Sequence[BackendOp], device: torch.device) -> Any:  # noqa: ARG002
        return IRExecutor(graph, device=device, passes=None)

    def run(self, program: Any, inputs: Sequence[Any]) -> Sequence[Any]:
        return list(program.run_flat(inputs)[0])
