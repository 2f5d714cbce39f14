"""Calls of an op in every way: cases are compared with their reference, refusals must fail as expected."""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable, Iterator

from npu_cuda import _C
from npu_cuda.errors import NpuCudaError
from npu_cuda.testing.case import Case, OpRow, Outcome, Refusal, TensorLayout
from npu_cuda.testing.memory import CallMemory, check_results, contiguous_strides, pack_attrs

Call = Callable[[CallMemory], None]


def run_case(row: OpRow, case: Case, device: str, *, is_whole: bool = True) -> Iterator[Outcome]:
    """Run by op_call, by each kernel that takes the case, by a program and by a captured graph.

    One more run uses memory of the exact size. On the emulated device, threads and blocks also run in another
    order, which must not change a bit. Since it takes long there, what repeats others is left out: op_call in
    larger memory, and a program that is not captured.

    Args:
        row: The op.
        case: The case.
        device: As ``devices()`` names it.
        is_whole: Otherwise each kernel runs, and op_call in memory of the exact size; on the emulated device
            the kernels alone, in such memory. Few of the many cases of an op need more.
    """

    def run(way: str, call: Call, *, exact: bool = False) -> Outcome:
        return _run_call(row, case, CallMemory.of(case, device, exact=exact), device, way, "", call)

    is_slow = is_emulated(device)
    if is_whole and not is_slow:
        yield run("op_call", _op_call(row, case))
    if is_whole or not is_slow:
        yield run("op_call, exact memory", _op_call(row, case), exact=True)
    for kernel in kernels_of(row, device):
        yield from _run_kernel(row, case, device, kernel, exact=is_slow and not is_whole)
    if is_whole and not is_slow:
        yield run("program", _program_call(row, case, device, capture=False))
    if is_whole:
        yield run("graph", _program_call(row, case, device, capture=True))


def _number_of(case: Case) -> int:
    """Return a number that is the same in every run."""
    return zlib.crc32(case.name.encode())


def _run_kernel(row: OpRow, case: Case, device: str, kernel: str, *, exact: bool) -> Iterator[Outcome]:
    call, memory = _kernel_call(row, case, kernel), CallMemory.of(case, device, exact=exact)
    outcome = _run_call(row, case, memory, device, "launch_by_id", kernel, call)
    if "does not take" in outcome.wrong:
        return
    yield outcome
    if outcome.passed and is_emulated(device):
        yield _run_schedules(row, case, device, kernel, _stored(memory))


def kernels_of(row: OpRow, device: str) -> list[str]:
    """Return the ids of the kernels of an op for a device that can run here, by descending priority."""
    kind = device.partition(":")[0]
    absent = "fused.cuda" if _C.chain_compiler()["absence"] else None
    kernels = _C.kernels(_C.kinds()[row.op])
    return [kernel["id"] for kernel in kernels if kernel["device"] == kind and kernel["id"] != absent]


def is_emulated(device: str) -> bool:
    return device != "host" and _C.build_info()["mode"] == "EMULATE"


def _run_call(
    row: OpRow, case: Case, memory: CallMemory, device: str, way: str, kernel: str, call: Call
) -> Outcome:
    try:
        call(memory)
    except NpuCudaError as error:
        return Outcome(row.op, case.name, device, way, kernel, "Ok", error.status.name, wrong=str(error))
    worst, tolerance, wrong = check_results(row, case, memory)
    return Outcome(row.op, case.name, device, way, kernel, "Ok", "Ok", worst, tolerance, wrong)


def _op_call(row: OpRow, case: Case) -> Call:
    return lambda memory: _C.op_call(
        _C.kinds()[row.op], *memory.tensors(), *pack_attrs(row.schema, case.attrs)
    )


def _kernel_call(row: OpRow, case: Case, kernel: str) -> Call:
    return lambda memory: _C.launch_by_id(kernel, *memory.tensors(), *pack_attrs(row.schema, case.attrs))


def _program_call(row: OpRow, case: Case, device: str, *, capture: bool) -> Call:
    def call(memory: CallMemory) -> None:
        program = _C.Program(device)
        inputs = [program.slot(spec_of(layout)) for layout in case.inputs]
        outputs = [
            inputs[case.aliases[i]] if i in case.aliases else program.slot(spec_of(layout))
            for i, layout in enumerate(case.outputs)
        ]
        program.add(_C.kinds()[row.op], inputs, outputs, *pack_attrs(row.schema, case.attrs))
        program.finalize()
        for slot, guarded in zip([*inputs, *outputs], [*memory.inputs, *memory.outputs], strict=True):
            program.bind(slot, guarded.tensor)
        if capture:
            program.capture().launch()
        else:
            program.run()

    return call


def spec_of(layout: TensorLayout) -> _C.TensorSpec:
    strides = contiguous_strides(layout.shape) if layout.strides is None else layout.strides
    return _C.TensorSpec(layout.dtype, layout.shape, strides, 0 if layout.shift else 256)


def _run_schedules(row: OpRow, case: Case, device: str, kernel: str, expected: bytes) -> Outcome:
    """Run a kernel with its threads in another order: reversed in a third of the cases, else a random one."""
    number = _number_of(case)
    schedule = 1 if number % 3 == 0 else 2 + number % 1000
    memory = CallMemory.of(case, device)
    _set_schedule(schedule)
    try:
        _kernel_call(row, case, kernel)(memory)
    finally:
        _set_schedule(0)
    wrong = ""
    if _stored(memory) != expected:
        wrong = f"the order of threads changes what {kernel} computes (schedule {schedule})"
    return Outcome(row.op, case.name, device, "schedules", kernel, "Ok", "Ok", wrong=wrong)


def _stored(memory: CallMemory) -> bytes:
    return b"".join(output.stored_elements().tobytes() for output in memory.outputs)


def _set_schedule(schedule: int) -> None:
    _C.emulator_set_schedule(schedule)  # type: ignore[attr-defined]  # only in a build with the emulator


def run_refusal(row: OpRow, refusal: Refusal, device: str) -> Iterator[Outcome]:
    """Run by op_call, which reports the status of the refusal, and by each kernel: InvalidArgument."""
    attrs = refusal.raw_attrs or pack_attrs(row.schema, refusal.attrs)
    call = functools.partial(_C.op_call, _C.kinds()[row.op], schema_id=attrs[0], attrs_bytes=attrs[1])
    yield _run_refused(row, refusal, device, "op_call", "", call)
    for kernel in kernels_of(row, device):
        call = functools.partial(_C.launch_by_id, kernel, schema_id=attrs[0], attrs_bytes=attrs[1])
        yield _run_refused(row, refusal, device, "launch_by_id", kernel, call)


def _run_refused(
    row: OpRow, refusal: Refusal, device: str, way: str, kernel: str, call: Callable[..., None]
) -> Outcome:
    expected = refusal.status if way == "op_call" else "InvalidArgument"
    memory = CallMemory.of(Case(refusal.name, refusal.inputs, refusal.outputs), device)
    inputs, outputs = memory.tensors()
    for output, (source, offset) in refusal.overlaps.items():
        layout = refusal.outputs[output]
        outputs[output] = inputs[source].view(layout.shape, layout.strides, offset, layout.dtype)
    status, text = "Ok", ""
    try:
        call(inputs, outputs)
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
