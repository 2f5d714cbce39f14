"""How close the kernels come to what the hardware can do; on a GPU only."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from npu_cuda import OpKind, Program, TensorSpec

BYTES_PER_SECOND = 4.3e12  # read and written: what a copy reaches on an H200
FLOPS_PER_SECOND = 67e12  # float32 without tensor cores
LAUNCHES = 20
ROUNDS = 20


@dataclass(frozen=True, slots=True)
class Case:
    """One op on tensors of one kind.

    Attributes:
        title: For the table.
        kind: The op.
        shapes: Of the inputs, then of the output.
        dtype: Of all.
        torch: The same by PyTorch, on the same tensors.
    """

    title: str
    kind: OpKind
    shapes: tuple[tuple[int, ...], ...]
    dtype: torch.dtype
    torch: Callable[..., object]


BIG = (1 << 27,)
CASES = (
    Case("relu, 134M bfloat16", OpKind.EltwiseRelu, (BIG, BIG), torch.bfloat16, lambda x, y: torch.clamp_min(x, 0, out=y)),
    Case("add, 134M bfloat16", OpKind.EltwiseAdd, (BIG, BIG, BIG), torch.bfloat16, lambda a, b, y: torch.add(a, b, out=y)),
    Case("copy, 134M bfloat16", OpKind.Copy, (BIG, BIG), torch.bfloat16, lambda x, y: y.copy_(x)),
    Case("relu, 16K float32", OpKind.EltwiseRelu, ((1 << 14,),) * 2, torch.float32, lambda x, y: torch.clamp_min(x, 0, out=y)),
    Case("gemm, 1024 float32", OpKind.Gemm, ((1024, 1024),) * 3, torch.float32, lambda a, b, y: torch.mm(a, b, out=y)),
    Case("gemm, 4096 float32", OpKind.Gemm, ((4096, 4096),) * 3, torch.float32, lambda a, b, y: torch.mm(a, b, out=y)),
)  # fmt: skip


def measure(quick: bool) -> list[dict[str, Any]]:
    """Return a row per case; none where PyTorch finds no GPU."""
    if not torch.cuda.is_available():
        return []
    torch.backends.cuda.matmul.allow_tf32 = False
    return [row(case, 5 if quick else ROUNDS) for case in CASES]


def row(case: Case, rounds: int) -> dict[str, Any]:
    tensors = [torch.randn(shape, device="cuda").to(case.dtype) for shape in case.shapes]
    program = Program("cuda")
    dtype = str(case.dtype).removeprefix("torch.")
    slots = [program.slot(TensorSpec(dtype, list(tensor.shape), alignment=16)) for tensor in tensors]
    for _ in range(LAUNCHES):
        program.add(case.kind, slots[:-1], slots[-1:])
    program.finalize()
    for slot, tensor in zip(slots, tensors, strict=True):
        program.bind(slot, tensor)
    graph = program.capture()
    moved, flops = program.cost()
    floor = max(moved / BYTES_PER_SECOND, flops / FLOPS_PER_SECOND) / LAUNCHES
    return {
        "title": case.title,
        "kernel": program.kernels[0],
        "us": timed(graph.launch, rounds),
        "floor_us": floor * 1e6,
        "torch_us": timed(captured(case, tensors).replay, rounds),
    }


def captured(case: Case, tensors: list[torch.Tensor]) -> torch.cuda.CUDAGraph:
    """Return the same launches by PyTorch, as a graph."""
    case.torch(*tensors)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(LAUNCHES):
            case.torch(*tensors)
    return graph


def timed(run: Callable[[], object], rounds: int) -> float:
    """Return microseconds per launch on the device: the median of rounds, after one that is not counted."""
    run()
    times = []
    for _ in range(rounds):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) * 1e3 / LAUNCHES)
    return statistics.median(times)
