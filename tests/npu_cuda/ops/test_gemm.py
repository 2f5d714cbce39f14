"""Products of matrices on the host: instruction sets, random shapes, threads, and gradients of epilogues."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
import torch
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

import npu_cuda
from npu_cuda import _C, OpKind, attrs
from tests.support.tiers import examples

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12, torch.bfloat16: 1e-2, torch.float16: 2e-3}
PROBES = (
    *(
        "attention",
        "gemm",
        "gemm_epilogue",
        "pack_matrix",
        "packed_gemm",
        "quantized_gemm",
        "dynamic_quantized_gemm",
    ),
    "recurrent",
)


def run_python(*arguments: str, vector_bytes: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "NPU_CUDA_VECTOR_BYTES": vector_bytes}
    return subprocess.run(
        [sys.executable, *arguments], check=False, capture_output=True, text=True, env=environment
    )


@pytest.mark.parametrize("vector_bytes", [16, 32])
def test_each_instruction_set_gives_the_reference(vector_bytes: int) -> None:
    if vector_bytes >= _C.vector_bytes():
        pytest.skip("the loops of this processor are those that the table of probes runs")

    used = run_python(
        "-c", "from npu_cuda import _C; print(_C.vector_bytes())", vector_bytes=str(vector_bytes)
    )
    probed = run_python("-m", "npu_cuda.probe", *PROBES, "--device", "host", vector_bytes=str(vector_bytes))

    assert used.stdout.split()[-1] == str(vector_bytes)  # behind what an editable install says
    assert probed.returncode == 0, probed.stdout[-2000:] + probed.stderr[-2000:]


def test_vectors_of_no_processor_are_refused() -> None:
    result = run_python("-c", "from npu_cuda import _C", vector_bytes="48")

    assert "NPU_CUDA_VECTOR_BYTES is '48', not 64, 32 or 16" in result.stderr


@st.composite
def products(draw: st.DrawFn) -> tuple[Tensor, Tensor, Tensor, dict[str, float]]:
    dtype = draw(st.sampled_from(list(TOLERANCE)))
    m, n, k = (draw(st.sampled_from([1, 1, 2, 5, 6, 7, 16, 33, 64, 70, 130, 300])) for _ in range(3))
    batch = draw(st.sampled_from([(), (3,), (2, 1, 3)]))
    numbers = torch.Generator().manual_seed(draw(st.integers(0, 1000)))

    def matrix(rows: int, columns: int, shape: tuple[int, ...]) -> Tensor:
        step, is_turned = draw(st.sampled_from([1, 1, 2])), draw(st.booleans())
        sizes = (*shape, columns, rows * step) if is_turned else (*shape, rows, columns * step)
        whole = torch.randn(sizes, generator=numbers, dtype=torch.float64).to(dtype)[..., ::step]
        return whole.transpose(-1, -2) if is_turned else whole

    ta, tb = draw(st.booleans()), draw(st.booleans())
    a = matrix(k, m, batch) if ta else matrix(m, k, batch)
    b_batch = draw(st.sampled_from([(), batch[-1:], batch]))
    b = matrix(n, k, b_batch) if tb else matrix(k, n, b_batch)
    c = matrix(draw(st.sampled_from([1, m])), n, draw(st.sampled_from([(), batch])))
    fields = {"ta": int(ta), "tb": int(tb), "alpha": draw(st.sampled_from([1.0, -0.5])), "beta": 1.0}
    return a, b, c, {**fields, "beta": draw(st.sampled_from([0.0, 1.0, 2.0]))}


@examples(150, suppress_health_check=list(HealthCheck), deadline=None)
@given(products())
def test_any_shapes_and_strides_give_the_product(
    given: tuple[Tensor, Tensor, Tensor, dict[str, float]],
) -> None:
    a, b, c, fields = given
    left = (a.mT if fields["ta"] else a).double()
    right = (b.mT if fields["tb"] else b).double()
    expected = fields["alpha"] * (left @ right) + fields["beta"] * c.double()

    found = torch.full(expected.shape, float("nan"), dtype=a.dtype)
    npu_cuda.op_call(OpKind.Gemm, [a, b, c], [found], *attrs("GEMM", **fields))

    scale = (left.abs() @ right.abs() + c.double().abs()).clamp(min=1)
    assert float(((found.double() - expected).abs() / scale).max()) < TOLERANCE[a.dtype]


def all_products(a: Tensor, b: Tensor) -> Iterator[Tensor]:
    for left, right in (
        (a, b),
        (a[:1], b),
        (a[:1], b.t().contiguous().t()),
        (a, b[:, :1]),
        (a[:145], b[:, :40]),
    ):
        found = torch.empty(left.shape[0], right.shape[1], dtype=a.dtype)
        npu_cuda.op_call(OpKind.Gemm, [left, right], [found])
        yield found
    each = torch.empty(4, a.shape[0] // 4, b.shape[1], dtype=a.dtype)
    npu_cuda.op_call(OpKind.Gemm, [a.view(4, -1, a.shape[1]), b.expand(4, *b.shape)], [each])
    yield each
    tile = {64: 64, 32: 16, 16: 8}[_C.vector_bytes()]
    for width in (tile, 64):  # of the widest tile, and of the panels that passes make
        panels = torch.empty(-(-b.shape[1] // width), b.shape[0], width, dtype=a.dtype)
        npu_cuda.op_call(npu_cuda.kinds()["PackMatrix"], [b], [panels])
        for rows in (*range(1, 12), 129):
            found = torch.empty(rows, b.shape[1], dtype=a.dtype)
            npu_cuda.op_call(npu_cuda.kinds()["PackedGemm"], [a[:rows], panels], [found])
            yield found
    sums = torch.empty(b.shape[1], dtype=a.dtype)
    npu_cuda.op_call(
        OpKind.GemmEpilogue, [a, b], [torch.empty_like(each).view(a.shape[0], -1), sums],
        *attrs("GEPI", epilogue=6),
    )  # fmt: skip
    yield sums


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_threads_do_not_change_a_bit(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    a, b = torch.randn(200, 700).to(dtype), torch.randn(700, 499).to(dtype)
    before = _C.thread_count()
    results = []
    try:
        for count in (1, 2, 3, 5):
            _C.set_thread_count(count)
            results.append(list(all_products(a, b)))
    finally:
        _C.set_thread_count(before)

    for other in results[1:]:
        torch.testing.assert_close(other, results[0], rtol=0, atol=0)


def test_infinities_and_nan_are_those_of_the_products() -> None:
    a = torch.tensor([[float("inf"), 1.0], [float("nan"), 1.0], [0.0, 1.0]])
    b = torch.tensor([[0.0, 1.0, -1.0], [1.0, 1.0, 1.0]])
    found = torch.empty(3, 3)

    npu_cuda.op_call(OpKind.Gemm, [a, b], [found])

    torch.testing.assert_close(found, a @ b, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize(("forward", "backward", "activation"), [
    pytest.param(3, 5, torch.relu, id="relu"),
    pytest.param(7, 8, lambda x: F.gelu(x, approximate="tanh"), id="gelu"),
])  # fmt: skip
def test_epilogues_give_the_gradients_of_autograd(forward: int, backward: int, activation: object) -> None:
    torch.manual_seed(0)
    x, bias = torch.randn(20, 30), torch.randn(50, requires_grad=True)
    first, second = torch.randn(50, 30) / 8, torch.randn(40, 50) / 8
    z = F.linear(x, first) + bias
    hidden = activation(z)  # type: ignore[operator]
    z.retain_grad()
    grad = torch.randn(20, 40)
    (F.linear(hidden, second) * grad).sum().backward()

    found, aux = torch.empty(20, 50), torch.empty(20, 50)
    kinds = attrs("GEPI", tb=1, epilogue=forward)
    npu_cuda.op_call(OpKind.GemmEpilogue, [x, first, bias.detach()], [found, aux], *kinds)
    dz, dbias = torch.empty(20, 50), torch.empty(50)
    npu_cuda.op_call(OpKind.GemmEpilogue, [grad, second, aux], [dz, dbias], *attrs("GEPI", epilogue=backward))

    assert z.grad is not None
    for ours, theirs in ((found, hidden), (aux, z), (dz, z.grad), (dbias, bias.grad)):
        torch.testing.assert_close(ours, theirs.detach(), rtol=1e-5, atol=1e-5)  # type: ignore[union-attr]
