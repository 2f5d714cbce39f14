"""What reductions have in common: accuracy, threads, and special values."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

import npu_cuda
from npu_cuda import _C


@pytest.fixture
def threads() -> Iterator[None]:
    before = _C.thread_count()
    yield
    _C.set_thread_count(before)


def reduce(name: str, x: torch.Tensor, y: torch.Tensor, **attrs: float) -> torch.Tensor:
    (schema,) = (info["schema"] for info in _C.ops() if info["name"] == name)
    npu_cuda.op_call(npu_cuda.kinds()[name], [x], [y], *npu_cuda.attrs(schema, **attrs))
    return y


@pytest.mark.parametrize(("shape", "axes"), [((4_000_000,), 1), ((500_000, 8), 1)])
def test_a_long_sum_of_float32_is_accurate(shape: tuple[int, ...], axes: int) -> None:
    x = torch.full(shape, 0.1)
    exact = x.double().sum(0)

    y = reduce("Sum", x, torch.empty(shape[1:]), axes=axes)

    assert float(((y.double() - exact) / exact).abs().max()) < 1e-6


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("name", ["Sum", "Var", "LogSumExp", "Amax"])
@pytest.mark.parametrize(
    ("shape", "axes"), [((400_001,), 1), ((900, 700), 1), ((900, 700), 2), ((3, 150_000), 2)]
)
def test_a_result_does_not_depend_on_the_number_of_threads(
    name: str, shape: tuple[int, ...], axes: int
) -> None:
    torch.manual_seed(0)
    x = torch.randn(shape)
    results = []
    for count in (1, 2, 3):
        _C.set_thread_count(count)
        y = torch.empty([size for axis, size in enumerate(shape) if not axes >> axis & 1])
        results.append(reduce(name, x, y, axes=axes))

    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


NAN, INFINITY = float("nan"), float("inf")


@pytest.mark.parametrize(
    "values", [[NAN, 1.0, 2.0], [INFINITY, -INFINITY], [-INFINITY] * 3, [-0.0, -0.0], [3e38] * 2]
)
@pytest.mark.parametrize("repeats", [1, 20, 700])
@pytest.mark.parametrize("name", ["Sum", "Prod", "Amax", "Amin", "LogSumExp", "NormTwo", "NormMin", "Var"])
def test_special_values_give_those_of_pytorch(name: str, repeats: int, values: list[float]) -> None:
    functions = {
        "Sum": torch.sum, "Prod": torch.prod, "Amax": torch.amax, "Amin": torch.amin, "Var": torch.var,
        "LogSumExp": lambda x: x.logsumexp(0), "NormTwo": torch.linalg.vector_norm,
        "NormMin": lambda x: torch.linalg.vector_norm(x, -INFINITY),
    }  # fmt: skip
    x = torch.tensor(values * repeats)

    y = reduce(name, x, torch.empty(()))

    torch.testing.assert_close(y, functions[name](x), rtol=1e-6, atol=0, equal_nan=True)
