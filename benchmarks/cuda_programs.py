"""Cases of the benchmark of CUDA kernels as native programs, and whether their results are right."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from cuda_case import Case
from host_ops import Call
from torch import Tensor

import npu_cuda
from npu_cuda.backend import CudaBackend, HostBackend
from npu_ir import extract_ir

TOLERANCES = {torch.float32: 1e-4, torch.bfloat16: 2e-2}  # relative to the largest element
RANDOM_TOLERANCE = 0.05


@dataclass(frozen=True, slots=True)
class Program:
    """A case as a native program, bound to its tensors.

    Attributes:
        native: The program.
        stream: Returns the stream to run it on.
        results: What it writes.
        refusal: Why the backend does not take it where PyTorch has another kernel; empty if it does.
    """

    native: npu_cuda.Program
    stream: Callable[[], int]
    results: Sequence[Tensor]
    refusal: str = ""

    def run(self) -> None:
        self.native.run(self.stream())


def make_program(
    case: Case, tensors: tuple[Tensor, ...], expected: Sequence[Tensor], device: torch.device
) -> Program:
    return (kind_program if case.kind else graph_program)(case, tensors, expected, device)


def graph_program(
    case: Case, tensors: tuple[Tensor, ...], expected: Sequence[Tensor], device: torch.device
) -> Program:
    backend = CudaBackend() if device.type == "cuda" else HostBackend()
    graph = extract_ir(Call(case.function, tensors), tensors)
    prepared = backend.prepare(graph, backend.lower(graph), device)
    results = [backend.allocate(value.tensor_type, device) for value in graph.outputs]
    assert len(results) == len(expected)
    bound, copies = prepared.place_outputs(tensors, results)
    assert not copies, "a result is an input, or another result"
    native = prepared.instance_for(bound).native
    refusals = [reason for node in graph.nodes if (reason := backend.supports(node))]
    return Program(native, lambda: backend.stream(device), results, "; ".join(refusals))


def kind_program(
    case: Case, tensors: tuple[Tensor, ...], expected: Sequence[Tensor], device: torch.device
) -> Program:
    results = [torch.empty_like(tensor) for tensor in expected]
    is_gpu = device.type == "cuda"
    native = npu_cuda.Program("cuda" if is_gpu else "host")
    slots = [native.slot(spec_of(tensor)) for tensor in (*tensors, *results)]
    name, fields = case.attrs
    attrs = npu_cuda.attrs(name, **fields) if name else (0, b"")
    native.add(npu_cuda.kinds()[case.kind], slots[: len(tensors)], slots[len(tensors) :], *attrs)
    native.finalize()
    for slot, tensor in zip(slots, (*tensors, *results), strict=True):
        native.bind(slot, tensor)
    return Program(native, lambda: torch.cuda.current_stream().cuda_stream if is_gpu else 0, results)


def spec_of(tensor: Tensor) -> npu_cuda.TensorSpec:
    return npu_cuda.TensorSpec(str(tensor.dtype).removeprefix("torch."), list(tensor.shape), alignment=16)


def difference(results: Sequence[Tensor], expected: Sequence[Tensor], *, is_random: bool) -> str:
    """Return how results differ from those of PyTorch beyond rounding; empty if they do not."""
    for place, (ours, theirs) in enumerate(zip(results, expected, strict=True)):
        if (ours.shape, ours.dtype) != (theirs.shape, theirs.dtype):
            return f"result {place}: {ours.dtype} {list(ours.shape)}, not {theirs.dtype} {list(theirs.shape)}"
        if is_random:
            off, limit = (ours.float().mean() - theirs.float().mean()).abs(), RANDOM_TOLERANCE
        elif theirs.is_floating_point():
            scale = theirs.abs().max().float().clamp_min(1e-30)
            off, limit = (ours.float() - theirs.float()).abs().max() / scale, TOLERANCES[theirs.dtype]
        else:
            off, limit = (ours != theirs).sum(), 0
        if not float(off) <= limit:  # NaN, too
            return f"result {place} is off by {float(off):.2g}"
    return ""
