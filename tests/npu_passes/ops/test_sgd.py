"""``npu::sgd_step`` takes the steps of SGD."""

from typing import Any

import pytest
import torch

from npu_passes import PassError
from npu_passes.ops.training import BIND, SGD_STEP, optimizer_lists
from tests.support.passes.optimizer_cases import (
    SGD,
    Lists,
    assert_as_good,
    cast,
    gradients,
    random,
    torch_run,
)
from tests.support.rows import each_row

OPS = torch.ops.npu
OPTIONS = [
    pytest.param({}, id="plain"),
    pytest.param({"weight_decay": 0.1}, id="weight-decay"),
    pytest.param({"maximize": True}, id="maximize"),
    pytest.param({"momentum": 0.9}, id="momentum"),
    pytest.param({"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}, id="nesterov"),
    pytest.param({"momentum": 0.9, "dampening": 0.3, "weight_decay": 0.1, "maximize": True}, id="dampening"),
]


def run(start: Any, grads: Any, dtype: torch.dtype, options: dict[str, Any]) -> Lists:
    """Take steps as the documentation of ``sgd_step_`` says: the first one without dampening."""
    lists = Lists(cast(start, dtype))
    buffers = lists.exp_avgs if options.get("momentum") else []
    given = {**SGD, **options}
    for index, row in enumerate(grads):
        dampening = given["dampening"] if index else 0.0
        OPS.sgd_step_(lists.params, cast(row, dtype), buffers, **{**given, "dampening": dampening})
    return lists


@pytest.mark.parametrize("options", OPTIONS)
def test_steps_in_place_are_those_of_the_fused_optimizer_bit_for_bit(options: dict[str, Any]) -> None:
    start, grads = random(), gradients(12)

    lists = run(start, grads, torch.float32, options)

    expected, optimizer = torch_run(
        torch.optim.SGD, start, grads, torch.float32, lr=0.01, fused=True, **options
    )
    states = [optimizer.state[param] for param in optimizer.param_groups[0]["params"]]
    assert all(map(torch.equal, lists.params, expected))
    if options.get("momentum"):
        assert all(map(torch.equal, lists.exp_avgs, [state["momentum_buffer"] for state in states]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("fused", [True, False], ids=["fused", "foreach"])
@pytest.mark.parametrize("options", OPTIONS)
def test_steps_are_as_good_as_those_of_the_plain_optimizer(
    options: dict[str, Any], fused: bool, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(optimizer_lists, "FUSED_DEVICES", ("cpu",) if fused else ())
    start = cast(random(dtype), torch.float64)
    grads = [cast(cast(row, dtype), torch.float64) for row in gradients(10)]

    lists = run(start, grads, dtype, options)

    exact, _ = torch_run(torch.optim.SGD, start, grads, torch.float64, lr=0.01, foreach=False, **options)
    plain, _ = torch_run(torch.optim.SGD, start, grads, dtype, lr=0.01, foreach=False, **options)
    assert_as_good(lists.params, plain, exact)


def test_dampening_applies_to_the_first_step_too() -> None:
    lists, grad = Lists([torch.zeros(3)]), torch.ones(3)

    OPS.sgd_step_(
        lists.params, [grad], lists.exp_avgs, **{**SGD, "lr": 1.0, "momentum": 0.5, "dampening": 0.25}
    )

    assert lists.exp_avgs[0].tolist() == [0.75] * 3
    assert lists.params[0].tolist() == [-0.75] * 3


def test_the_functional_op_returns_what_the_op_in_place_writes() -> None:
    lists, grads, given = Lists(random()), random(), {**SGD, "momentum": 0.9}
    before = cast(lists.params, torch.float32)

    params, buffers = OPS.sgd_step(lists.params, grads, lists.exp_avgs, **given)

    assert all(map(torch.equal, lists.params, before))
    assert not any(buffer.any() for buffer in lists.exp_avgs)
    OPS.sgd_step_(lists.params, grads, lists.exp_avgs, **given)
    assert all(map(torch.equal, lists.params, params))
    assert all(map(torch.equal, lists.exp_avgs, buffers))


@each_row("momentum", [0.0, 0.9])
def test_a_bound_step_is_the_step_in_place(momentum: float) -> None:
    start, grads = random(), random()
    bound, direct = (Lists(cast(start, torch.float32)) for _ in range(2))
    given = {**SGD, "momentum": momentum}
    step = BIND[SGD_STEP](bound.params, grads, bound.exp_avgs if momentum else [])

    for _ in range(3):
        step(**given)
        OPS.sgd_step_(direct.params, grads, direct.exp_avgs if momentum else [], **given)

    assert all(map(torch.equal, bound.params, direct.params))
    assert all(map(torch.equal, bound.exp_avgs, direct.exp_avgs))


def test_a_learning_rate_may_be_a_tensor() -> None:
    grads = [torch.randn(3, 5)]

    by_number, by_tensor = (
        OPS.sgd_step([torch.ones(3, 5)], grads, [], **{**SGD, "lr": lr})[0][0]
        for lr in (0.25, torch.tensor(0.25))
    )

    assert torch.equal(by_number, by_tensor)


def test_buffers_without_momentum_are_refused() -> None:
    with pytest.raises(PassError, match=r"momentum is 0\.0, but 1 momentum_buffers are given"):
        OPS.sgd_step_([torch.ones(3)], [torch.ones(3)], [torch.ones(3)], **SGD)
    with pytest.raises(
        PassError, match=r"(?s)momentum is 0\.9, but 0 momentum_buffers are given.*one of momentum_buffers"
    ):
        BIND[SGD_STEP]([torch.ones(3)], [torch.ones(3)], [])(**{**SGD, "momentum": 0.9})
