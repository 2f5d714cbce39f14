"""A backend that takes runs of nodes with views inside, packs constants once, and overwrites dead inputs."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from npu_ir import OpNode, Value
from npu_ir.errors import BackendError
from npu_ir.graph.partition import PartitionGraph
from npu_ir.plugins.backend import Backend, BackendOp

ELEMENTWISE = {"aten.mul.Tensor": torch.mul, "aten.add.Tensor": torch.add, "aten.neg.default": torch.neg}
MATMUL, VIEW = "aten.mm.default", "aten.view.default"


@dataclass
class Program:
    """The ops of a partition."""

    graph: PartitionGraph
    ops: Sequence[BackendOp]
    packed: dict[Value, tuple[torch.Tensor, torch.Tensor]] = field(default_factory=dict)
    packs: int = 0
    overwritten: list[int] = field(default_factory=list)

    def pack(self, value: Value, tensor: torch.Tensor) -> torch.Tensor:
        known, packed = self.packed.get(value, (None, tensor))
        if known is tensor:
            return packed
        self.packs += 1
        packed = tensor.t().contiguous()
        if value in self.graph.constant_inputs:
            self.packed[value] = tensor, packed
        return packed


class ThriftyBackend(Backend):
    """Runs sums, products, negations and views of contiguous float32 tensors.

    Attributes:
        programs: What was prepared, in order.
        lowered: The graphs that were lowered, in order.
    """

    name = "thrifty"

    def __init__(self) -> None:
        self.programs: list[Program] = []
        self.lowered: list[PartitionGraph] = []

    def devices(self) -> Sequence[torch.device]:
        return [torch.device("cpu")]

    def supports(self, node: OpNode) -> str | None:
        if node.op_type not in (*ELEMENTWISE, MATMUL, VIEW) or set(node.attrs) - {"size"}:
            return f"it does not run {node.op_type}"
        types = [value.type for value in (*node.inputs, *node.outputs)]
        if any(getattr(type, "dtype", None) is not torch.float32 or type.symbols for type in types):
            return "it takes float32 of fixed sizes"
        if any(type.strides is not None for type in types):  # type: ignore[union-attr]
            return "it takes contiguous tensors"
        is_uniform = node.op_type not in ELEMENTWISE or len(set(types)) == 1
        return None if is_uniform else "it does not broadcast"

    def lower(self, graph: PartitionGraph) -> Sequence[BackendOp]:
        self.lowered.append(graph)
        last = {value: node for node in graph.nodes for value in node.inputs}
        viewed = {value for node in graph.nodes if node.op_type == VIEW for value in node.inputs}
        ops = []
        for node in graph.nodes:
            free = [
                value
                for value in node.inputs
                if value in graph.overwritable_inputs and last[value] is node and value not in viewed
            ]
            over = tuple(free[:1]) if node.op_type in ELEMENTWISE else ()
            ops.append(BackendOp(node.op_type, node.inputs, node.outputs, (node,), overwrites=over))
        return ops

    def prepare(self, graph: PartitionGraph, ops: Sequence[BackendOp], device: torch.device) -> Program:
        self.programs.append(Program(graph, ops))
        return self.programs[-1]

    def run(self, program: Program, inputs: Sequence[Any]) -> Sequence[Any]:
        if len(inputs) != len(program.graph.inputs):
            raise BackendError(f"{len(inputs)} inputs for {len(program.graph.inputs)}")
        values: dict[Any, torch.Tensor] = dict(zip(program.graph.inputs, inputs, strict=True))
        for op in program.ops:
            (node,), read = op.nodes, [values[item] for item in op.inputs]
            if op.kind == VIEW:
                result = read[0].view(node.outputs[0].tensor_type.static_shape)
            elif op.kind == MATMUL:
                result = torch.mm(read[0], program.pack(node.inputs[1], read[1]).t())
            elif op.overwrites:
                target = values[op.overwrites[0]]
                program.overwritten.append(target.data_ptr())
                result = ELEMENTWISE[op.kind](*read, out=target)  # type: ignore[operator]
            else:
                result = ELEMENTWISE[op.kind](*read)  # type: ignore[operator]
            values[op.outputs[0]] = result
        return [values[value] for value in program.graph.outputs]
