"""Refusals of the optimizer ops, before anything is written."""

from typing import Any

import pytest
import torch
from torch import Tensor

from npu_passes import PassError
from npu_passes.ops.training import ADAM_STEP, BIND, SGD_STEP
from tests.support.passes.optimizer_cases import ADAM, SGD, Lists
from tests.support.rows import each_row

OPS = torch.ops.npu


def refused_by_all(lists: Lists, grads: list[Tensor], match: str) -> None:
    before = [item.clone() for item in (*lists.params, *lists.exp_avgs, *lists.steps)]

    with pytest.raises(PassError, match=f"(?s){match}"):
        OPS.adam_step_(lists.params, grads, *lists.adam, **ADAM)
    with pytest.raises(PassError, match=f"(?s){match}"):
        BIND[ADAM_STEP](lists.params, grads, *lists.adam)

    after = (*lists.params, *lists.exp_avgs, *lists.steps)
    assert all(map(torch.equal, before, after))


def lists_of(*params: Tensor, **columns: list[Tensor]) -> Lists:
    """Return what an Adam works on, with other columns than it should have."""
    lists = Lists(list(params))
    for name, column in columns.items():
        setattr(lists, name, column)
    return lists


ONE, TWO = torch.ones(3), [torch.ones(3), torch.ones(3)]
STEP = torch.zeros(())


@each_row("lists, grads, message", [
    (lists_of(ONE, torch.ones(2)), [ONE], "2 params, but 1 grads.*one of grads per parameter"),
    (lists_of(ONE, steps=[]), [ONE], "1 params, but 0 steps"),
    (lists_of(torch.ones(3, 5)), [torch.ones(5, 3)],
        r"params\[0\] has shape \[3, 5\], grads\[0\] has \[5, 3\].*same order"),
    (lists_of(ONE), [ONE.to_sparse()], r"grads\[0\] is torch.sparse_coo on cpu.*to_dense"),
    (lists_of(ONE.int()), [ONE],
        r"params\[0\] is a tensor of torch.int32: a step would be rounded.*floating-point"),
    (lists_of(ONE), [ONE.int()],
        r"params\[0\] is a tensor of torch.float32, grads\[0\] is one of torch.int32.*real tensors for a"),
    (lists_of(ONE), [ONE.to(torch.complex64)], r"grads\[0\] is one of torch.complex64.*real tensors"),
    (lists_of(ONE, exp_avgs=[ONE.int()]), [ONE],
        r"params\[0\] is a tensor of torch.float32, exp_avgs\[0\] is one of"),
    (lists_of(*TWO, steps=[STEP, STEP.double()]), TWO, r"steps\[1\] is a torch.float64.*all of one dtype"),
    (lists_of(*TWO, steps=[STEP, STEP]), [ONE, ONE], r"steps\[1\] shares memory with steps\[0\]"),
])  # fmt: skip
def test_lists_that_do_not_fit_are_refused(lists: Any, grads: Any, message: Any) -> None:
    refused_by_all(lists, grads, message)


def test_a_parameter_of_whole_numbers_is_refused_by_sgd_too() -> None:
    with pytest.raises(PassError, match=r"npu::sgd_step: params\[0\] is a tensor of torch.bool"):
        OPS.sgd_step_([ONE.bool()], [ONE], [], **SGD)


def test_a_gradient_on_another_device_is_refused() -> None:
    with pytest.raises(
        PassError, match=r"params\[0\] is torch.strided on cpu, grads\[0\] is torch.strided on meta"
    ):
        BIND[SGD_STEP]([ONE], [torch.ones(3, device="meta")], [])


@each_row("step", (torch.zeros(1), STEP.long(), STEP.to("meta")))
def test_a_counter_of_another_kind_is_refused(step: Any) -> None:
    message = r"(?s)steps\[0\] is a torch\..* of shape .*torch.zeros\(\(\), dtype=torch.float32"
    with pytest.raises(PassError, match=message):
        BIND[ADAM_STEP]([ONE], [ONE], *lists_of(ONE, steps=[step]).adam)


def test_maxima_without_amsgrad_are_refused() -> None:
    lists = Lists([ONE], amsgrad=True)

    with pytest.raises(
        PassError, match="(?s)amsgrad is False, but 1 max_exp_avg_sqs are given.*an empty list"
    ):
        OPS.adam_step_(lists.params, [ONE], *lists.adam, **ADAM)


@each_row("name", ("params", "exp_avgs", "exp_avg_sqs"))
def test_a_gradient_in_memory_that_is_written_to_is_refused(name: str) -> None:
    lists = Lists([torch.randn(3, 5)])

    message = rf"writes to {name}, and .*\[0\] shares memory with .*\[0\].*clone\(\) one of them"
    refused_by_all(lists, [getattr(lists, name)[0].view(3, 5)], message)


def test_a_gradient_that_begins_inside_a_parameter_is_refused(subtests: pytest.Subtests) -> None:
    memory = torch.randn(20)
    rows = [(memory[:12], memory[8:], "grads", "params"), (memory[8:], memory[:12], "params", "grads")]
    for param, grad, one, other in rows:
        message = rf"npu::sgd_step writes to params, and {one}\[0\] shares memory with {other}\[0\]"
        with subtests.test(message), pytest.raises(PassError, match=message):
            OPS.sgd_step_([param], [grad], [], **SGD)


def test_a_parameter_that_is_given_twice_is_refused() -> None:
    param = torch.ones(3)

    with pytest.raises(PassError, match=r"params\[1\] shares memory with params\[0\]"):
        OPS.sgd_step_([param, param], [torch.ones(3), torch.ones(3)], [], **SGD)


def test_neighbours_in_one_storage_are_apart() -> None:
    memory = torch.ones(12)
    params, grad = [memory[:4], memory[4:8]], memory[8:]

    OPS.sgd_step_(params, [grad, grad], [], **{**SGD, "lr": 0.5})

    assert memory.tolist() == [0.5] * 8 + [1.0] * 4


def test_tensors_without_elements_share_nothing() -> None:
    empty = torch.ones(0)

    OPS.sgd_step_([empty], [empty], [], **SGD)
