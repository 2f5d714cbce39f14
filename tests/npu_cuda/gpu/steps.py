"""Programs that the tests of this folder run, and the same in PyTorch."""

import torch

import npu_cuda
from npu_cuda import OpKind, Program, TensorSpec

RATE = -0.001


def relu_program(x: torch.Tensor, y: torch.Tensor, ops: int = 1) -> Program:
    """Return ``y = relu(x)``, so many times over, bound to the tensors."""
    program = Program("cuda")
    source, target = (program.slot(spec_of(tensor), name) for tensor, name in ((x, "x"), (y, "y")))
    for _ in range(ops):
        program.add(OpKind.EltwiseRelu, [source], [target])
    return bound(program, x, y)


def step_program(state: torch.Tensor, data: torch.Tensor) -> Program:
    """Return ``state += RATE * relu(state @ data)``: three ops, a temporary, and an update in place."""
    program = Program("cuda")
    spec = spec_of(state)
    held, given = program.slot(spec, "state"), program.slot(spec_of(data), "data")
    product, active = (program.slot(spec, name, external=False) for name in ("product", "active"))
    program.add(OpKind.Gemm, [held, given], [product])
    program.add(OpKind.EltwiseRelu, [product], [active])
    program.add(OpKind.EltwiseAdd, [held, active], [held], *npu_cuda.attrs("EADD", alpha=RATE))
    return bound(program, state, data)


def step_by_op_calls(
    state: torch.Tensor, data: torch.Tensor, product: torch.Tensor, active: torch.Tensor
) -> None:
    """Do what `step_program` does, one call at a time."""
    npu_cuda.op_call(OpKind.Gemm, [state, data], [product])
    npu_cuda.op_call(OpKind.EltwiseRelu, [product], [active])
    npu_cuda.op_call(OpKind.EltwiseAdd, [state, active], [state], *npu_cuda.attrs("EADD", alpha=RATE))


def branches_program(x: torch.Tensor, outputs: list[torch.Tensor], total: torch.Tensor) -> Program:
    """Return a fork and a join: each output is relu(x) plus x, the total is the sum of all outputs."""
    program = Program("cuda")
    spec = spec_of(x)
    source, summed = program.slot(spec, "x"), program.slot(spec, "total")
    slots = [program.slot(spec, f"branch {i}") for i in range(len(outputs))]
    for slot in slots:
        program.add(OpKind.EltwiseRelu, [source], [slot])
        program.add(OpKind.EltwiseAdd, [slot, source], [slot])
    program.add(OpKind.Copy, [slots[0]], [summed])
    for slot in slots[1:]:
        program.add(OpKind.EltwiseAdd, [summed, slot], [summed])
    return bound(program, x, total, *outputs)


def spec_of(tensor: torch.Tensor) -> TensorSpec:
    return TensorSpec(str(tensor.dtype).removeprefix("torch."), list(tensor.shape))


def bound(program: Program, *tensors: torch.Tensor) -> Program:
    program.finalize()
    for slot, tensor in enumerate(tensors):
        program.bind(slot, tensor)
    return program
