"""What reductions have in common: accuracy, threads, and special values."""

import pytest
import torch

import npu_cuda
from npu_cuda import _C, OpKind


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


def batch_norm_gradients(x: torch.Tensor, dy: torch.Tensor) -> list[torch.Tensor]:
    mean, rstd = x.mean((0, 2, 3)), torch.rsqrt(x.var((0, 2, 3), correction=0) + 1e-5)
    gamma = torch.linspace(0.5, 2, x.shape[1])
    results = [torch.empty_like(x), *(torch.empty(x.shape[1]) for _ in range(2))]
    npu_cuda.op_call(OpKind.BatchNormBwd, [dy, x, mean, rstd, gamma], results)
    return results


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_a_batch_norm_of_more_channels_than_the_cache_holds_is_that_of_pytorch(
    layout: torch.memory_format,
) -> None:
    torch.manual_seed(0)
    x, dy = (torch.randn(3, 7, 120, 130).to(memory_format=layout) for _ in range(2))
    leaves = [x.double().requires_grad_(), torch.linspace(0.5, 2, 7).double().requires_grad_()]
    leaves.append(torch.zeros(7, dtype=torch.float64, requires_grad=True))
    y = torch.nn.functional.batch_norm(leaves[0], None, None, leaves[1], leaves[2], training=True)
    expected = torch.autograd.grad(y, leaves, dy.double())

    found = []
    for count in (1, 2, 3):
        _C.set_thread_count(count)
        found.append(batch_norm_gradients(x, dy))

    for result, exact, *others in zip(found[0], expected, *found[1:], strict=True):
        torch.testing.assert_close(result.double(), exact, rtol=1e-4, atol=1e-3)
        assert all(torch.equal(result, other) for other in others)


@pytest.mark.parametrize("count", [1, 15, 16, 17, 50])
@pytest.mark.parametrize("width", [1, 3, 8, 16, 49, 64, 100])
def test_a_row_gives_the_same_beside_any_number_of_others(count: int, width: int) -> None:
    torch.manual_seed(0)
    x = torch.randn(count, width)

    together = reduce("Sum", x, torch.empty(count), axes=2)

    alone = [reduce("Sum", row[None], torch.empty(1), axes=2) for row in x]
    assert torch.equal(together, torch.cat(alone))


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
