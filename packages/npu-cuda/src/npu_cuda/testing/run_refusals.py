"""Invalid calls: each must fail with the expected status and text."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from npu_cuda import _C
from npu_cuda.errors import NpuCudaError
from npu_cuda.testing.case import Case, OpRow, Refusal
from npu_cuda.testing.memory import CallMemory, pack_attrs
from npu_cuda.testing.outcome import Outcome
from npu_cuda.testing.run_cases import kernels_of


def run_refusal(row: OpRow, refusal: Refusal, device: str) -> Iterator[Outcome]:
    """Run by op_call, which reports the status of the refusal, and by each kernel: InvalidArgument."""
    attrs = refusal.raw_attrs or pack_attrs(row.schema, refusal.attrs)
    kind = _C.kinds()[row.op]
    yield _run_call(row, refusal, device, "op_call", "", lambda tensors: _C.op_call(kind, *tensors, *attrs))
    for kernel in kernels_of(row, device):
        yield _run_call(row, refusal, device, "launch_by_id", kernel, _kernel_call(kernel, attrs))


Tensors = tuple[list[_C.Tensor], list[_C.Tensor]]


def _kernel_call(kernel: str, attrs: tuple[int, bytes]) -> Callable[[Tensors], None]:
    return lambda tensors: _C.launch_by_id(kernel, *tensors, *attrs)


def _run_call(
    row: OpRow, refusal: Refusal, device: str, way: str, kernel: str, call: Callable[[Tensors], None]
) -> Outcome:
    expected = refusal.status if way == "op_call" else "InvalidArgument"
    memory = CallMemory.of(Case(refusal.name, refusal.inputs, refusal.outputs), device)
    inputs, outputs = memory.tensors()
    for output, (source, offset) in refusal.overlaps.items():
        layout = refusal.outputs[output]
        outputs[output] = inputs[source].view(layout.shape, layout.strides, offset, layout.dtype)
    status, text = "Ok", ""
    try:
        call((inputs, outputs))
    except NpuCudaError as error:
        status, text = error.status.name, str(error)
    wrong = ""
    if status != expected:
        wrong = f"{status} instead of {expected}: {text}"
    elif way == "op_call" and refusal.match not in text:
        wrong = f"the error does not say {refusal.match!r}: {text}"
    elif any(x.describe_stray_writes(elements_too=True) for x in [*memory.inputs, *memory.outputs]):
        wrong = "memory was written"
    return Outcome(row.op, refusal.name, device, way, kernel, expected, status, wrong=wrong)
