"""A backend for tests: it takes `mm` and `relu`, makes two ops of each product, and runs them by PyTorch."""

from collections.abc import Sequence
from typing import Any

import torch

from npu_ir import Graph, OpNode, TensorType, parse_ir
from npu_ir.plugins.backend import Backend, BackendOp, Temporary
from npu_runtime.executor.executor import IRExecutor

TWO_LAYERS = """
graph "two-layers" {
  input %x: f32[2, 3]
  param %w1: f32[3, 5]
  param %w2: f32[5, 4]
  %h: f32[2, 5] = aten.mm.default(%x, %w1)
  %a: f32[2, 5] = aten.relu.default(%h)
  %s: f32[2, 5] = aten.sigmoid.default(%a)
  %y: f32[2, 4] = aten.mm.default(%s, %w2)
  return %y
}
"""


def two_layers() -> Graph:
    return parse_ir(TWO_LAYERS)


GEMM = int.from_bytes(b"GEMM", "little")


class TinyBackend(Backend):
    name = "tiny"

    def devices(self) -> Sequence[torch.device]:
        return [torch.device("cpu")]

    def supports(self, node: OpNode) -> str | None:
        return (
            None
            if node.op_type in ("aten.mm.default", "aten.relu.default")
            else "it multiplies and rectifies"
        )

    def lower(self, graph: Graph) -> Sequence[BackendOp]:
        ops: list[BackendOp] = []
        for node in graph.nodes:
            if node.op_type == "aten.relu.default":
                ops.append(BackendOp("Relu", node.inputs, node.outputs, (node,)))
                continue
            left, right = node.inputs
            assert isinstance(right.type, TensorType)
            packed = Temporary(f"{node.name}.packed", right.type)
            ops.append(BackendOp("Pack", (right,), (packed,), (node,)))
            ops.append(
                BackendOp(
                    "Gemm", (left, packed), node.outputs, (node,), "gemm_tiny", GEMM, b"\x01\x00\x00\x80"
                )
            )
        return ops

    def prepare(self, graph: Graph, ops: Sequence[BackendOp], device: torch.device) -> Any:
        return IRExecutor(graph, device=device, passes=None)

    def run(self, program: Any, inputs: Sequence[Any]) -> Sequence[Any]:
        return list(program.run_flat(inputs)[0])
