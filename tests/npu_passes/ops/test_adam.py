"""``npu::adam_step`` takes the steps of Adam and AdamW."""

from typing import Any

import pytest
import torch
from torch import Tensor

from npu_passes import PassError
from npu_passes.ops.training import ADAM_STEP, BIND, optimizer_lists
from tests.support.passes.optimizer_cases import (
    ADAM,
    SHAPES,
    Lists,
    assert_as_good,
    cast,
    gradients,
    random,
    torch_run,
)

OPS = torch.ops.npu
OPTIONS = [
    pytest.param({}, id="plain"),
    pytest.param({"weight_decay": 0.1}, id="weight-decay"),
    pytest.param({"amsgrad": True}, id="amsgrad"),
    pytest.param({"maximize": True}, id="maximize"),
    pytest.param({"amsgrad": True, "weight_decay": 0.1, "maximize": True, "eps": 1e-3}, id="all"),
]
KINDS = [pytest.param(torch.optim.Adam, id="Adam"), pytest.param(torch.optim.AdamW, id="AdamW")]


def numbers(kind: Any, options: dict[str, Any]) -> dict[str, Any]:
    return {**ADAM, **options, "decoupled": kind is torch.optim.AdamW}


def start_of(
    kind: Any, options: dict[str, Any], dtype: torch.dtype
) -> tuple[list[Tensor], Lists, dict[str, Any]]:
    start = random()
    lists = Lists(cast(start, dtype), amsgrad=options.get("amsgrad", False))
    return start, lists, numbers(kind, options)


def theirs(kind: Any, start: Any, grads: Any, dtype: torch.dtype, options: dict[str, Any], **how: Any) -> Any:
    given = {"weight_decay": 0.0, "lr": 0.01, **options}
    return torch_run(kind, start, grads, dtype, **given, **how)


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_steps_in_place_are_those_of_the_fused_optimizer_bit_for_bit(
    kind: Any, options: dict[str, Any]
) -> None:
    start, lists, given = start_of(kind, options, torch.float32)
    grads = gradients(12)

    for row in grads:
        OPS.adam_step_(lists.params, cast(row, torch.float32), *lists.adam, **given)

    expected, optimizer = theirs(kind, start, grads, torch.float32, options, fused=True)
    states = [optimizer.state[param] for param in optimizer.param_groups[0]["params"]]
    assert all(map(torch.equal, lists.params, expected))
    assert all(map(torch.equal, lists.exp_avgs, [state["exp_avg"] for state in states]))
    assert all(map(torch.equal, lists.exp_avg_sqs, [state["exp_avg_sq"] for state in states]))
    assert all(map(torch.equal, lists.maxima, [state["max_exp_avg_sq"] for state in states if lists.maxima]))
    assert [step.item() for step in lists.steps] == [12.0] * len(SHAPES)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize(("devices", "lr"), [
    pytest.param(("cpu",), 0.01, id="fused"),
    pytest.param((), 0.01, id="foreach"),
    pytest.param((), torch.tensor(0.01, dtype=torch.float64), id="foreach-tensor"),
])  # fmt: skip
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_steps_are_as_good_as_those_of_the_plain_optimizer(
    kind: Any,
    options: dict[str, Any],
    devices: tuple[str, ...],
    lr: Any,
    dtype: torch.dtype,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(optimizer_lists, "FUSED_DEVICES", devices)
    options = {**options, "eps": 1e-3} if dtype == torch.float16 else options  # 1e-8 is 0 in float16
    start, lists, given = start_of(kind, options, dtype)
    start = cast(lists.params, torch.float64)
    grads = [cast(cast(row, dtype), torch.float64) for row in gradients(10)]

    for row in grads:
        OPS.adam_step_(lists.params, cast(row, dtype), *lists.adam, **{**given, "lr": lr})

    exact, _ = theirs(kind, start, grads, torch.float64, options, foreach=False)
    plain, _ = theirs(kind, start, grads, dtype, options, foreach=False)
    assert_as_good(lists.params, plain, exact)
    assert [step.item() for step in lists.steps] == [10.0] * len(SHAPES)


def test_the_functional_op_returns_what_the_op_in_place_writes() -> None:
    lists, grads = Lists(random(), amsgrad=True), random()
    columns = [lists.params, *lists.adam]
    before = [cast(column, torch.float32) for column in columns]

    results = OPS.adam_step(lists.params, grads, *lists.adam, **{**ADAM, "amsgrad": True})

    assert all(all(map(torch.equal, *pair)) for pair in zip(before, columns, strict=True))
    OPS.adam_step_(lists.params, grads, *lists.adam, **{**ADAM, "amsgrad": True})
    assert all(all(map(torch.equal, *pair)) for pair in zip(results, columns, strict=True))


def test_parameters_of_several_dtypes_take_their_steps_each() -> None:
    start = [torch.randn(3, 5), torch.randn(7, dtype=torch.float64)]
    mixed, apart = Lists([item.clone() for item in start]), [Lists([item.clone()]) for item in start]

    OPS.adam_step_(mixed.params, start, *mixed.adam, **ADAM)
    for one, grad in zip(apart, start, strict=True):
        OPS.adam_step_(one.params, [grad], *one.adam, **ADAM)

    assert all(torch.equal(param, one.params[0]) for param, one in zip(mixed.params, apart, strict=True))
    assert [step.item() for step in mixed.steps] == [1.0, 1.0]


def test_a_gradient_in_another_memory_layout_is_read_element_by_element() -> None:
    start = random(shapes=[(3, 5), (2, 3, 4, 5)])
    turned = [start[0].t().contiguous().t(), start[1].to(memory_format=torch.channels_last)]
    grads = random(shapes=[(3, 5), (2, 3, 4, 5)])
    apart, alike = Lists(cast(start, torch.float32)), Lists(cast(start, torch.float32))
    apart.params = [item.clone() for item in turned]

    for _ in range(3):
        OPS.adam_step_(apart.params, grads, *apart.adam, **ADAM)
        OPS.adam_step_(alike.params, grads, *alike.adam, **ADAM)

    assert [p.stride() for p in apart.params] == [p.stride() for p in turned]
    assert all(map(torch.equal, apart.params, alike.params))
    assert all(map(torch.equal, apart.exp_avgs, alike.exp_avgs))


def test_parameters_with_gaps_in_memory_keep_what_lies_between() -> None:
    wide = torch.randn(3, 10)
    before, lists, dense = wide.clone(), Lists([wide[:, ::2]]), Lists([wide[:, ::2].clone()])
    grads = [torch.randn(3, 5)]

    OPS.adam_step_(lists.params, grads, *lists.adam, **ADAM)
    OPS.adam_step_(dense.params, grads, *dense.adam, **ADAM)

    assert torch.equal(wide[:, ::2], dense.params[0])
    assert torch.equal(wide[:, 1::2], before[:, 1::2])


def test_states_of_a_wider_dtype_are_kept_in_it() -> None:
    start = random(torch.bfloat16)
    narrow, wide = Lists(cast(start, torch.bfloat16)), Lists(cast(start, torch.float32))
    narrow.exp_avgs, narrow.exp_avg_sqs = (
        cast(item, torch.float32) for item in (wide.exp_avgs, wide.exp_avg_sqs)
    )
    grads = random(torch.bfloat16)

    OPS.adam_step_(narrow.params, grads, *narrow.adam, **ADAM)
    OPS.adam_step_(wide.params, cast(grads, torch.float32), *wide.adam, **ADAM)

    assert all(map(torch.equal, narrow.params, cast(wide.params, torch.bfloat16)))
    assert all(map(torch.equal, narrow.exp_avgs, wide.exp_avgs))


def test_complex_parameters_are_two_real_ones() -> None:
    start, grad = torch.randn(3, 5, dtype=torch.complex64), torch.randn(3, 5, dtype=torch.complex64)
    lists = Lists([start.clone()])
    expected = torch.nn.Parameter(start.clone())
    optimizer = torch.optim.Adam([expected], lr=0.01, foreach=False)

    for _ in range(3):
        OPS.adam_step_(lists.params, [grad], *lists.adam, **ADAM)
        expected.grad = grad
        optimizer.step()

    torch.testing.assert_close(lists.params[0], expected.detach())


@pytest.mark.parametrize("side_by_side", [False, True])
@pytest.mark.parametrize("amsgrad", [False, True])
def test_a_bound_step_is_the_step_in_place(side_by_side: bool, amsgrad: bool) -> None:
    start, grads = random(), random()
    bound, direct = (Lists(cast(start, torch.float32), amsgrad=amsgrad) for _ in range(2))
    if side_by_side:
        bound.steps = list(torch.zeros(len(SHAPES)).unbind())
    given = {**ADAM, "amsgrad": amsgrad}
    step = BIND[ADAM_STEP](bound.params, grads, *bound.adam)

    for _ in range(3):
        step(**given)
        OPS.adam_step_(direct.params, grads, *direct.adam, **given)

    assert all(map(torch.equal, bound.params, direct.params))
    assert all(map(torch.equal, bound.exp_avg_sqs, direct.exp_avg_sqs))
    assert [step.item() for step in bound.steps] == [3.0] * len(SHAPES)


def test_a_bound_step_reads_a_gradient_of_another_layout_anew_each_time() -> None:
    bound, direct = Lists([torch.ones(3, 5)]), Lists([torch.ones(3, 5)])
    grad = torch.randn(5, 3).t()
    step = BIND[ADAM_STEP](bound.params, [grad], *bound.adam)

    for _ in range(3):
        grad.copy_(torch.randn(3, 5))
        step(**ADAM)
        OPS.adam_step_(direct.params, [grad.contiguous()], *direct.adam, **ADAM)

    assert torch.equal(bound.params[0], direct.params[0])


def test_a_bound_step_knows_whether_it_has_maxima() -> None:
    lists = Lists([torch.ones(3)])
    step = BIND[ADAM_STEP](lists.params, [torch.ones(3)], *lists.adam)

    with pytest.raises(PassError, match="amsgrad is True, but 0 max_exp_avg_sqs are given"):
        step(**{**ADAM, "amsgrad": True})

    assert lists.steps[0].item() == 0


def test_a_step_on_nothing_does_nothing() -> None:
    assert OPS.adam_step([], [], [], [], [], [], **ADAM) == ([], [], [], [], [])
    BIND[ADAM_STEP]([], [], [], [], [], [])(**ADAM)


def test_what_was_saved_for_a_backward_is_seen_to_have_changed() -> None:
    lists = Lists([torch.ones(3)])
    x = torch.ones(3, requires_grad=True)
    loss = (x * lists.params[0]).sum()

    OPS.adam_step_(lists.params, [torch.ones(3)], *lists.adam, **ADAM)

    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_parameters_that_require_gradients_are_updated_outside_autograd() -> None:
    lists = Lists([torch.ones(3)])
    lists.params[0].requires_grad_()

    OPS.adam_step_(lists.params, [torch.ones(3)], *lists.adam, **ADAM)
    result = OPS.adam_step(lists.params, [torch.ones(3)], *lists.adam, **ADAM)

    assert lists.params[0].is_leaf
    assert not result[0][0].requires_grad
