"""A backend that computes some ops of float32 on the CPU, by kernels of its own.

It looks as one for a device does, with PyTorch in the place of the device: ``supports`` looks at a
node, ``lower`` turns nodes into ops that name a kernel and pack their attributes, ``prepare`` binds
kernels and places, and ``run`` allocates and launches.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from npu_ir import Graph, OpNode, TensorType
from npu_ir.backend import Temporary
from npu_ir.hookspecs import hookimpl
from npu_runtime import Backend, BackendError, BackendOp
from torch import Tensor

# How attributes are packed, by the number of the schema: one number.
SCALE = 1
FORMATS = {SCALE: "<d"}

# A kernel reads tensors and numbers, and writes into memory that is there.
Kernel = Callable[[Sequence[Tensor], Sequence[float], Tensor], object]

KERNELS: dict[str, Kernel] = {
    "add_f32": lambda x, scale, y: torch.add(x[0], x[1], alpha=scale[0], out=y),
    "add_number_f32": lambda x, number, y: torch.add(x[0], number[0], out=y),
    "mul_f32": lambda x, _, y: torch.mul(x[0], x[1], out=y),
    "mul_number_f32": lambda x, number, y: torch.mul(x[0], number[0], out=y),
    "relu_f32": lambda x, _, y: torch.clamp_min(x[0], 0.0, out=y),
    "gemm_f32": lambda x, _, y: torch.mm(
        x[0].view(-1, x[0].shape[-1]), x[1].t(), out=y.view(-1, y.shape[-1])
    ),
    "bias_f32": lambda x, _, y: torch.add(x[0], x[1], out=y),
}

BINARY = {"aten.add.Tensor": "add", "aten.mul.Tensor": "mul"}


@dataclass(frozen=True)
class Launch:
    """One kernel with all that it is launched with; tensors go by their place in the program."""

    kernel: Kernel
    numbers: tuple[float, ...]
    reads: tuple[int, ...]
    writes: int


@dataclass(frozen=True)
class Program:
    """The launches of a graph. Places hold its inputs, then what is allocated for each run."""

    inputs: int
    allocated: tuple[TensorType, ...]
    launches: tuple[Launch, ...]
    results: tuple[int, ...]


class ExampleBackend(Backend):
    """Runs sums, products, relu and linear layers."""

    name = "npu-plugin-example"

    def devices(self) -> Sequence[torch.device]:
        return [torch.device("cpu")]

    def supports(self, node: OpNode) -> str | None:
        if node.op_type not in (*BINARY, "aten.relu.default", "aten.linear.default"):
            return f"no kernel for {node.op_type}"
        types = [value.type for value in (*node.inputs, *node.outputs)]
        for type in types:
            if not isinstance(type, TensorType) or type.dtype is not torch.float32:
                return f"kernels take float32, not {type}"
            if type.symbols or type.memory_format is not torch.contiguous_format:
                return f"kernels take contiguous tensors of fixed sizes, not {type}"
        return SHAPE_RULES[node.op_type](node)

    def lower(self, graph: Graph) -> Sequence[BackendOp]:
        return [op for node in graph.nodes for op in lowered(node)]

    def prepare(self, graph: Graph, ops: Sequence[BackendOp], device: torch.device) -> Program:
        places: dict[Any, int] = {value: index for index, value in enumerate(graph.inputs)}
        launches, allocated = [], []
        for op in ops:
            (output,) = op.outputs
            numbers = struct.unpack(FORMATS[op.schema_id], op.attrs) if op.schema_id else ()
            places[output] = len(places)
            allocated.append(output.type)
            reads = tuple(places[item] for item in op.inputs)
            launches.append(Launch(KERNELS[op.kernel], numbers, reads, places[output]))
        results = tuple(places[value] for value in graph.outputs)
        return Program(len(graph.inputs), tuple(allocated), tuple(launches), results)

    def run(self, program: Program, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
        if len(inputs) != program.inputs:
            raise BackendError(f"{len(inputs)} inputs for a program that takes {program.inputs}")
        device = self.devices()[0]
        tensors = [*inputs, *(self.allocate(type, device) for type in program.allocated)]
        for launch in program.launches:
            read = [tensors[place] for place in launch.reads]
            launch.kernel(read, launch.numbers, tensors[launch.writes])
        return [tensors[place] for place in program.results]


def binary_problem(node: OpNode) -> str | None:
    if len({value.tensor_type.shape for value in (*node.inputs, *node.outputs)}) != 1:
        return "kernels do not broadcast"
    numbers = [node.attrs.get("alpha", 1.0)]
    if len(node.inputs) == 1:
        numbers.append(node.attrs.get("other"))
    if not all(type(number) in (int, float) for number in numbers):
        return "the other operand is neither a tensor nor a number"
    if len(node.inputs) == 1 and numbers[0] != 1:
        return "no kernel adds a number that is scaled"
    return None if len(node.inputs) <= 2 else "kernels take two operands"


def linear_problem(node: OpNode) -> str | None:
    if len(node.inputs) not in (2, 3):
        return "kernels take an input, a weight and a bias"
    x, weight, *bias = [value.tensor_type.static_shape for value in node.inputs]
    if not x or len(weight) != 2 or x[-1] != weight[1] or any(item != weight[:1] for item in bias):
        return f"no kernel for {list(x)} by {list(weight)}"
    if 0 in (*x, *weight):
        return "the kernel takes no empty matrices"
    return None


SHAPE_RULES: dict[str, Callable[[OpNode], str | None]] = {
    "aten.add.Tensor": binary_problem,
    "aten.mul.Tensor": binary_problem,
    "aten.relu.default": lambda node: None if len(node.inputs) == 1 else "relu takes one tensor",
    "aten.linear.default": linear_problem,
}


def lowered(node: OpNode) -> list[BackendOp]:
    """Return the ops that compute one node; a linear layer with a bias takes two."""
    if node.op_type == "aten.relu.default":
        return [BackendOp("relu", node.inputs, node.outputs, (node,), "relu_f32")]
    if node.op_type != "aten.linear.default":
        return [lowered_binary(node)]
    product, bias = node.inputs[:2], node.inputs[2:]
    if not bias:
        return [BackendOp("gemm", product, node.outputs, (node,), "gemm_f32")]
    between = Temporary("product", node.outputs[0].tensor_type)
    return [
        BackendOp("gemm", product, (between,), (node,), "gemm_f32"),
        BackendOp("bias", (between, *bias), node.outputs, (node,), "bias_f32"),
    ]


def lowered_binary(node: OpNode) -> BackendOp:
    kind = BINARY[node.op_type]
    if len(node.inputs) == 2 and kind == "mul":
        return BackendOp(kind, node.inputs, node.outputs, (node,), "mul_f32")
    is_number = len(node.inputs) == 1
    number = node.attrs["other"] if is_number else node.attrs.get("alpha", 1.0)
    packed = struct.pack(FORMATS[SCALE], number)
    kernel = f"{kind}_number_f32" if is_number else f"{kind}_f32"
    return BackendOp(kind, node.inputs, node.outputs, (node,), kernel, SCALE, packed)


@hookimpl
def npu_backends() -> list[Backend]:
    return [ExampleBackend()]
