"""Rotary embeddings on the native backends: one op for queries and keys, with the results of many."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from npu_cuda.backend import CudaBackend, HostBackend
from npu_cuda.backend.native import NativeBackend
from npu_ir import Graph, extract_ir
from npu_ir.plugins.backend import BackendOp
from npu_passes import PassManager
from npu_passes.library.fusion.fuse_rotary import FuseRotary
from npu_runtime import IRExecutor
from tests.support.backends.native_backends import NATIVE_BACKENDS
from tests.support.corpus.case import Holding
from tests.support.emulator.module import needs_emulator
from tests.support.rows import each_row

HOST, CUDA = HostBackend(), CudaBackend()
FLOATS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


def rotate_half(x: Tensor) -> Tensor:
    return torch.cat((-x[..., x.shape[-1] // 2 :], x[..., : x.shape[-1] // 2]), dim=-1)


def turn(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    width = cos.shape[-1]
    if width == x.shape[-1]:
        return x * cos + rotate_half(x) * sin
    turned, rest = x[..., :width], x[..., width:]
    return torch.cat((turned * cos + rotate_half(turned) * sin, rest), -1)


def both(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """Heads side by side, as linear layers make them; fewer of keys than of queries."""
    q, k = (item.transpose(1, 2) for item in (q, k))
    return turn(q, cos, sin), turn(k, cos, sin)


def tensors(dtype: torch.dtype = torch.float32, *, count: int = 5, width: int = 16) -> tuple[Tensor, ...]:
    torch.manual_seed(0)
    q, k = torch.randn(2, count, 6, 16), torch.randn(2, count, 2, 16)
    angles = torch.randn(2, 1, count, width)
    return tuple(item.to(dtype) for item in (q, k, angles.cos(), angles.sin()))


def fused_graph(function: Callable[..., Any], args: Sequence[Tensor]) -> Graph:
    model = Holding(lambda self, *args: function(*args))
    return PassManager([FuseRotary]).run(extract_ir(model.eval(), tuple(args))).graph


def lowered(function: Callable[..., Any], args: Sequence[Tensor], backend: NativeBackend) -> list[BackendOp]:
    return [op for op in backend.lower(fused_graph(function, args)) if op.kernel]


@pytest.mark.smoke
@pytest.mark.parametrize("backend", NATIVE_BACKENDS)
@each_row("dtype", FLOATS)
@each_row("width", [16, 10])
@each_row("count", [1, 5])
def test_results_are_those_of_the_ops_one_by_one(
    dtype: torch.dtype, width: int, count: int, backend: NativeBackend
) -> None:
    args = tensors(dtype, count=count, width=width)

    executor = IRExecutor(fused_graph(both, args), None, backend=backend, passes=None)

    assert [item.backend for item in executor.instructions] == [backend.name]
    for found, expected in zip(executor(*args), both(*args), strict=True):
        assert found.dtype == expected.dtype
        assert torch.equal(found, expected)


def test_queries_and_keys_are_turned_by_one_op_on_the_host() -> None:
    ops = lowered(both, tensors(), HOST)

    assert [(op.kind, len(op.inputs), len(op.outputs)) for op in ops] == [("Rotary", 4, 2)]


@needs_emulator
def test_the_kernels_for_gpus_take_both_too() -> None:
    ops = lowered(both, tensors(), CUDA)

    assert {op.kernel for op in ops} == {"rotary.f32.cuda"}


def test_what_is_turned_twice_or_by_other_angles_takes_an_op_each() -> None:
    def function(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        q, k = q.transpose(1, 2), k.transpose(1, 2)
        return turn(turn(q, cos, sin), cos, sin), turn(k, sin, cos)

    args = tensors()

    ops = lowered(function, args, HOST)

    assert [len(op.outputs) for op in ops if op.kind == "Rotary"] == [1, 1, 1]
    executor = IRExecutor(fused_graph(function, args), None, backend=HOST, passes=None)
    assert all(map(torch.equal, executor(*args), function(*args)))


def test_long_rows_are_turned_by_several_threads() -> None:
    args = tensors(count=700)

    executor = IRExecutor(fused_graph(both, args), None, backend=HOST, passes=None, threads=2)

    assert all(map(torch.equal, executor(*args), both(*args)))
