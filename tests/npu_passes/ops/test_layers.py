"""The layers, loss gradients and counters of a training step compute and differentiate as PyTorch does."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from npu_ir.ops.schema import resolve
from npu_passes import PassError
from tests.support.passes.optimizer_cases import ADAM, SGD, Lists, random
from tests.support.rows import each_row

OPS = torch.ops.npu


def needs_grad(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, dtype=dtype, requires_grad=True)


def adam_lists(*, amsgrad: bool = False, turned: bool = False) -> tuple[list[Tensor], ...]:
    lists = Lists(random(), amsgrad=amsgrad)
    grads = [grad.mT.contiguous().mT if turned and grad.dim() > 1 else grad for grad in random()]
    return lists.params, grads, *lists.adam


def in_memory(numbers: dict[str, Any]) -> dict[str, Any]:
    """Return numbers as tensors, but for flags."""
    return {
        name: torch.tensor(item, dtype=torch.float64) if isinstance(item, float) else item
        for name, item in numbers.items()
    }


@pytest.mark.parametrize(("name", "sample"), [
    pytest.param("linear.default", lambda: ((needs_grad(2, 4, 5), needs_grad(3, 5), needs_grad(3)), {}),
        id="linear"),
    pytest.param("linear.default", lambda: ((needs_grad(4, 5), needs_grad(3, 5)), {}), id="linear-no-bias"),
    pytest.param("relu.default", lambda: ((needs_grad(3, 4),), {}), id="relu"),
    pytest.param("relu_backward.default", lambda: ((needs_grad(3, 4), torch.randn(3, 4)), {}),
        id="relu_backward"),
    pytest.param("mse_grad.default", lambda: ((needs_grad(3, 4), needs_grad(3, 4)), {}), id="mse_grad"),
    pytest.param("mse_grad.default", lambda: ((needs_grad(3, 4), torch.randn(3, 4), 0.5), {}),
        id="mse_grad-scale"),
    pytest.param("step_inc.default", lambda: ((torch.ones(()),), {}), id="step_inc"),
    pytest.param("step_inc_.default", lambda: ((torch.ones(()),), {}), id="step_inc_"),
    pytest.param("grad_zero.default", lambda: ((torch.ones(3),), {}), id="grad_zero"),
    pytest.param("grad_zero_.default", lambda: ((torch.ones(3),), {}), id="grad_zero_"),
    pytest.param("bias_corr.default", lambda: ((torch.ones(()), 0.9, 0.99), {}), id="bias_corr"),
    pytest.param("bias_corr.default", lambda: ((torch.ones((), dtype=torch.int64), 0.9, 0.99), {}),
        id="bias_corr-int64"),
    pytest.param("bias_corr_out.default",
        lambda: ((torch.ones(()), 0.9, 0.99), {"bc1_inv": torch.ones(()), "bc2_inv": torch.ones(())}),
        id="bias_corr_out"),
    *[
        pytest.param(
            f"adam_step{suffix}",
            lambda lr=lr, more=more: (
                adam_lists(**more), {**ADAM, "lr": lr, "amsgrad": "amsgrad" in more}
            ),
            id=f"adam_step{suffix}-{'-'.join(more)}",
            marks=pytest.mark.exhaustive if more and "lr" in suffix else (),
        )
        for more in ({}, {"amsgrad": True}, {"turned": True})
        for suffix, lr in (
            (".default", 0.1), ("_.default", 0.1), (".tensor_lr", torch.tensor(0.1)),
            ("_.tensor_lr", torch.tensor(0.1))
        )
    ],
    *[
        pytest.param(
            f"sgd_step{suffix}", lambda lr=lr: (adam_lists()[:3], {**SGD, "lr": lr, "momentum": 0.9}),
            id=f"sgd_step{suffix}"
        )
        for suffix, lr in (
            (".default", 0.1), ("_.default", 0.1), (".tensor_lr", torch.tensor(0.1)),
            ("_.tensor_lr", torch.tensor(0.1))
        )
    ],
    *[
        pytest.param(f"{name}{suffix}", lambda made=made: made(), id=f"{name}{suffix}")
        for suffix in (".tensor_numbers", "_.tensor_numbers")
        for name, made in (
            ("adam_step", lambda: (adam_lists(), in_memory({**ADAM, "lr": 0.1, "amsgrad": False}))),
            ("sgd_step", lambda: (adam_lists()[:3], in_memory({**SGD, "lr": 0.1, "momentum": 0.9}))),
        )
    ],
])  # fmt: skip
def test_the_op_does_what_its_registrations_say(name: str, sample: Callable[[], Any]) -> None:
    args, kwargs = sample()
    op = resolve(f"npu.{name}")

    results = torch.library.opcheck(op, args, kwargs)

    assert set(results.values()) == {"SUCCESS"}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no-bias"])
@pytest.mark.parametrize("shape", [(5,), (4, 5), (2, 3, 5), (0, 5), (2, 1, 3, 5)], ids=str)
def test_linear_and_its_gradients_are_those_of_pytorch(shape: Any, bias: bool, dtype: torch.dtype) -> None:
    def leaves() -> list[Tensor]:
        torch.manual_seed(0)
        sizes = [shape, (3, 5), (3,)][: 2 + bias]
        return [torch.randn(*size, dtype=dtype).requires_grad_() for size in sizes]

    ours, theirs = leaves(), leaves()
    grad = torch.randn(*shape[:-1], 3, dtype=dtype)

    out, expected = OPS.linear(*ours), F.linear(*theirs)
    out.backward(grad)
    expected.backward(grad)

    assert torch.equal(out, expected)
    for our, their in zip(ours, theirs, strict=True):
        torch.testing.assert_close(our.grad, their.grad)


@each_row("frozen", [0, 1, 2])
def test_linear_gives_no_gradient_to_what_needs_none(frozen: int) -> None:
    leaves = [needs_grad(4, 5), needs_grad(3, 5), needs_grad(3)]
    leaves[frozen].requires_grad_(False)

    OPS.linear(*leaves).sum().backward()

    assert [leaf.grad is None for leaf in leaves] == [index == frozen for index in range(3)]


def test_layers_are_differentiated_twice() -> None:
    x, weight, bias = (needs_grad(*size, dtype=torch.float64) for size in ((2, 5), (3, 5), (3,)))
    target = needs_grad(2, 3, dtype=torch.float64)

    def through(*leaves: Tensor) -> Tensor:
        return OPS.mse_grad(OPS.relu(OPS.linear(*leaves[:3])), leaves[3])  # type: ignore[no-any-return]

    assert torch.autograd.gradcheck(through, (x, weight, bias, target))
    assert torch.autograd.gradgradcheck(through, (x, weight, bias, target))


@pytest.mark.smoke
def test_relu_keeps_nan_and_its_gradient_is_that_of_pytorch() -> None:
    values = torch.tensor([-1.0, -0.0, 0.0, 2.0, float("nan"), float("inf"), -float("inf")])
    ours, theirs = values.clone().requires_grad_(), values.clone().requires_grad_()

    out, expected = OPS.relu(ours), torch.relu(theirs)
    out.backward(torch.arange(7.0))
    expected.backward(torch.arange(7.0))

    torch.testing.assert_close(out, expected, rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=0, atol=0)


def test_mse_grad_is_the_gradient_of_the_loss(subtests: pytest.Subtests) -> None:
    for reduction, scale in [("mean", None), ("sum", 2.0)]:
        for shape in [(3, 5), (7,), (), (0, 3)]:
            with subtests.test(reduction=reduction, scale=scale, shape=shape):
                prediction, target = torch.randn(shape, requires_grad=True), torch.randn(shape)

                F.mse_loss(prediction, target, reduction=reduction).backward()

                assert torch.equal(OPS.mse_grad(prediction.detach(), target, scale), prediction.grad)


def test_mse_grad_of_other_shapes_is_refused() -> None:
    with pytest.raises(
        PassError, match=r"(?s)prediction of shape \[3, 1\] with a target of shape \[3\].*the same shape"
    ):
        OPS.mse_grad(torch.ones(3, 1), torch.ones(3))


@each_row("dtype", [torch.bfloat16, torch.float16])
def test_autocast_casts_what_linear_takes(dtype: Any) -> None:
    x, weight, bias = needs_grad(4, 5), needs_grad(3, 5), needs_grad(3)

    with torch.autocast("cpu", dtype):
        out, expected = OPS.linear(x, weight, bias), F.linear(x, weight, bias)
    out.float().sum().backward()

    assert out.dtype == dtype
    assert torch.equal(out, expected)
    assert weight.grad.dtype == torch.float32


@each_row("betas", [(0.9, 0.999), (0.0, 0.5), (0.95, 0.99999)])
def test_corrections_are_multipliers(betas: Any) -> None:
    for count in (1, 2, 5, 100, 10**6):
        results = OPS.bias_corr(torch.tensor(float(count)), *betas)

        for result, beta in zip(results, betas, strict=True):
            assert result.item() == pytest.approx(1 / (1 - beta**count), rel=1e-6)
            assert result.dtype == torch.float32


COUNTERS = [torch.int64, torch.int32, torch.float32, torch.float64]


@pytest.mark.parametrize("out_dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("dtype", COUNTERS, ids=str)
@pytest.mark.parametrize(("shape", "out_shape"), [((), ()), ((1,), (1,)), ((1,), ()), ((), (1,))], ids=str)
def test_corrections_are_right_in_the_dtype_and_shape_of_what_they_are_written_to(
    shape: Any, out_shape: Any, dtype: torch.dtype, out_dtype: torch.dtype
) -> None:
    step = torch.full(shape, 5, dtype=dtype)
    outs = [torch.empty(out_shape, dtype=out_dtype) for _ in range(2)]
    functional = [item.clone() for item in outs]

    OPS.bias_corr_out(step, 0.9, 0.999, bc1_inv=outs[0], bc2_inv=outs[1])
    torch.func.functionalize(OPS.bias_corr_out)(
        step, 0.9, 0.999, bc1_inv=functional[0], bc2_inv=functional[1]
    )

    expected = [torch.full(out_shape, 1 / (1 - beta**5), dtype=out_dtype) for beta in (0.9, 0.999)]
    assert all(map(torch.equal, outs, expected))
    assert all(map(torch.equal, functional, expected))


def test_the_corrections_of_whole_numbers_are_not_whole_numbers() -> None:
    results = OPS.bias_corr(torch.tensor([5, 10]), 0.9, 0.999)

    expected = [torch.tensor([1 / (1 - beta**5), 1 / (1 - beta**10)]) for beta in (0.9, 0.999)]
    assert all(map(torch.equal, results, expected))
    assert OPS.bias_corr(torch.tensor(5), 0.9, 0.999, dtype=torch.float64)[0].item() == 1 / (1 - 0.9**5)


@each_row("dtype", [torch.bfloat16, torch.float16, torch.uint8, torch.int8, torch.bool])
def test_a_dtype_that_cannot_count_steps_is_refused(dtype: Any) -> None:
    step, out = torch.ones((), dtype=dtype), torch.empty(())

    for count in (OPS.step_inc, OPS.step_inc_):
        with pytest.raises(PassError, match=rf"(?s)step is a {dtype}, which cannot count.*use a counter of"):
            count(step)
    with pytest.raises(PassError, match=rf"the step is a {dtype}"):
        OPS.bias_corr_out(step, 0.9, 0.999, bc1_inv=out, bc2_inv=out.clone())


@each_row("out", [torch.empty((), dtype=torch.int64), torch.empty(2)])
def test_corrections_are_not_written_where_they_do_not_fit(out: Any) -> None:
    with pytest.raises(
        PassError, match=rf"(?s)bc2_inv is a {out.dtype} of shape .*for a step of shape \[\].*floating-point"
    ):
        OPS.bias_corr_out(torch.ones(()), 0.9, 0.999, bc1_inv=torch.empty(()), bc2_inv=out)
