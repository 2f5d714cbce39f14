"""Time of the kernels relative to the limits of the hardware; on a GPU only."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from npu_cuda import OpKind, Program, TensorSpec

FLOPS_PER_SECOND = 67e12  # float32 without tensor cores, of an H100 and an H200
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
    Case(
        "relu, 134M bfloat16", OpKind.EltwiseRelu, (BIG, BIG), torch.bfloat16,
        lambda x, y: torch.clamp_min(x, 0, out=y)
    ),
    Case(
        "add, 134M bfloat16", OpKind.EltwiseAdd, (BIG, BIG, BIG), torch.bfloat16,
        lambda a, b, y: torch.add(a, b, out=y)
    ),
    Case("copy, 134M bfloat16", OpKind.Copy, (BIG, BIG), torch.bfloat16, lambda x, y: y.copy_(x)),
    Case(
        "relu, 16K float32", OpKind.EltwiseRelu, ((1 << 14,),) * 2, torch.float32,
        lambda x, y: torch.clamp_min(x, 0, out=y)
    ),
    Case(
        "gemm, 1024 float32", OpKind.Gemm, ((1024, 1024),) * 3, torch.float32,
        lambda a, b, y: torch.mm(a, b, out=y)
    ),
    Case(
        "gemm, 4096 float32", OpKind.Gemm, ((4096, 4096),) * 3, torch.float32,
        lambda a, b, y: torch.mm(a, b, out=y)
    ),
)  # fmt: skip


def measure(quick: bool) -> list[dict[str, Any]]:
    """Return a row per case; none where PyTorch finds no GPU."""
    if not torch.cuda.is_available():
        return []
    torch.backends.cuda.matmul.allow_tf32 = False
    rate = copy_rate()
    return [row(case, 5 if quick else ROUNDS, rate) for case in CASES]


def copy_rate() -> float:
    """Return how many bytes a second a copy by PyTorch reads and writes on this GPU."""
    x, y = (torch.zeros(BIG, dtype=torch.bfloat16, device="cuda") for _ in range(2))
    microseconds = timed(lambda: [y.copy_(x) for _ in range(LAUNCHES)], ROUNDS)
    return 2 * x.nbytes / microseconds * 1e6


def row(case: Case, rounds: int, bytes_per_second: float) -> dict[str, Any]:
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
    floor = max(moved / bytes_per_second, flops / FLOPS_PER_SECOND) / LAUNCHES
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
