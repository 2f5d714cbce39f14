"""Refusals of the optimizer ops, before anything is written."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from npu_passes import PassError
from npu_passes.ops.training import ADAM_STEP, BIND, SGD_STEP
from tests.support.passes.optimizer_cases import ADAM, SGD, Lists

OPS = torch.ops.npu


def refused_by_all(lists: Lists, grads: list[Tensor], match: str) -> None:
    before = [item.clone() for item in (*lists.params, *lists.exp_avgs, *lists.steps)]

    with pytest.raises(PassError, match=f"(?s){match}"):
        OPS.adam_step_(lists.params, grads, *lists.adam, **ADAM)
    with pytest.raises(PassError, match=f"(?s){match}"):
        BIND[ADAM_STEP](lists.params, grads, *lists.adam)

    after = (*lists.params, *lists.exp_avgs, *lists.steps)
    assert all(map(torch.equal, before, after))


def test_a_list_that_is_too_short_is_refused() -> None:
    refused_by_all(
        Lists([torch.ones(3), torch.ones(2)]),
        [torch.ones(3)],
        "2 params, but 1 grads.*one of grads per parameter",
    )


def test_counters_that_are_missing_are_refused() -> None:
    lists = Lists([torch.ones(3)])
    lists.steps = []

    refused_by_all(lists, [torch.ones(3)], "1 params, but 0 steps")


def test_a_gradient_of_another_shape_is_refused() -> None:
    refused_by_all(
        Lists([torch.ones(3, 5)]),
        [torch.ones(5, 3)],
        r"params\[0\] has shape \[3, 5\], grads\[0\] has \[5, 3\].*same order",
    )


def test_a_sparse_gradient_is_refused() -> None:
    refused_by_all(
        Lists([torch.ones(3)]),
        [torch.ones(3).to_sparse()],
        r"grads\[0\] is torch.sparse_coo on cpu.*to_dense",
    )


def test_a_parameter_of_whole_numbers_is_refused(subtests: pytest.Subtests) -> None:
    for dtype in [torch.int32, torch.bool]:
        with subtests.test(dtype=dtype):
            param = torch.ones(3, dtype=dtype)

            refused_by_all(
                Lists([param]), [torch.ones(3)],
                rf"params\[0\] is a tensor of {dtype}: a step would be rounded.*floating-point"
            )  # fmt: skip
            with pytest.raises(PassError, match=rf"npu::sgd_step: params\[0\] is a tensor of {dtype}"):
                OPS.sgd_step_([param], [torch.ones(3)], [], **SGD)


def test_a_gradient_of_another_kind_of_numbers_is_refused(subtests: pytest.Subtests) -> None:
    for dtype in [torch.int32, torch.complex64]:
        with subtests.test(dtype=dtype):
            refused_by_all(
                Lists([torch.ones(3)]),
                [torch.ones(3, dtype=dtype)],
                (
                    rf"params\[0\] is a tensor of torch.float32, grads\[0\] is one of {dtype}.*real "
                    "tensors for a real parameter"
                ),
            )


def test_a_moment_of_whole_numbers_is_refused() -> None:
    lists = Lists([torch.ones(3)])
    lists.exp_avgs[0] = lists.exp_avgs[0].int()

    refused_by_all(
        lists, [torch.ones(3)], r"params\[0\] is a tensor of torch.float32, exp_avgs\[0\] is one of"
    )


def test_a_gradient_on_another_device_is_refused() -> None:
    with pytest.raises(
        PassError, match=r"params\[0\] is torch.strided on cpu, grads\[0\] is torch.strided on meta"
    ):
        BIND[SGD_STEP]([torch.ones(3)], [torch.ones(3, device="meta")], [])


def test_a_counter_of_another_kind_is_refused(subtests: pytest.Subtests) -> None:
    rows = [torch.zeros(1), torch.zeros((), dtype=torch.int64), torch.zeros((), device="meta")]
    for step in rows:
        with subtests.test(step=step):
            lists = Lists([torch.ones(3)])
            lists.steps = [step]

            with pytest.raises(
                PassError,
                match=r"(?s)steps\[0\] is a torch\..* of shape .*torch.zeros\(\(\), dtype=torch.float32",
            ):
                BIND[ADAM_STEP](lists.params, [torch.ones(3)], *lists.adam)


def test_counters_of_several_dtypes_are_refused() -> None:
    lists = Lists([torch.ones(3), torch.ones(3)])
    lists.steps[1] = lists.steps[1].double()

    refused_by_all(lists, [torch.ones(3), torch.ones(3)], r"steps\[1\] is a torch.float64.*all of one dtype")


def test_maxima_without_amsgrad_are_refused() -> None:
    lists = Lists([torch.ones(3)], amsgrad=True)

    with pytest.raises(
        PassError, match="(?s)amsgrad is False, but 1 max_exp_avg_sqs are given.*an empty list"
    ):
        OPS.adam_step_(lists.params, [torch.ones(3)], *lists.adam, **ADAM)


def test_a_gradient_in_memory_that_is_written_to_is_refused(subtests: pytest.Subtests) -> None:
    rows = [
        (lambda lists: lists.params[0], "params"),
        (lambda lists: lists.exp_avgs[0], "exp_avgs"),
        (lambda lists: lists.exp_avg_sqs[0].view(5, 3).t(), "exp_avg_sqs"),
    ]
    for grad, name in rows:
        with subtests.test(grad=grad, name=name):
            lists = Lists([torch.randn(3, 5)])

            refused_by_all(
                lists, [grad(lists).view(3, 5) if grad(lists).is_contiguous() else grad(lists)],
                rf"writes to {name}, and .*\[0\] shares memory with .*\[0\].*clone\(\) one of them",
            )  # fmt: skip


def test_a_gradient_that_begins_inside_a_parameter_is_refused() -> None:
    memory = torch.randn(20)
    with pytest.raises(
        PassError, match=r"npu::sgd_step writes to params, and grads\[0\] shares memory with params\[0\]"
    ):
        OPS.sgd_step_([memory[:12]], [memory[8:]], [], **SGD)
    with pytest.raises(
        PassError, match=r"npu::sgd_step writes to params, and params\[0\] shares memory with grads\[0\]"
    ):
        OPS.sgd_step_([memory[8:]], [memory[:12]], [], **SGD)


def test_a_parameter_that_is_given_twice_is_refused() -> None:
    param = torch.ones(3)

    with pytest.raises(PassError, match=r"params\[1\] shares memory with params\[0\]"):
        OPS.sgd_step_([param, param], [torch.ones(3), torch.ones(3)], [], **SGD)


def test_one_counter_for_two_parameters_is_refused() -> None:
    lists = Lists([torch.ones(3), torch.ones(3)])
    lists.steps[1] = lists.steps[0]

    refused_by_all(lists, [torch.ones(3), torch.ones(3)], r"steps\[1\] shares memory with steps\[0\]")


def test_neighbours_in_one_storage_are_apart() -> None:
    memory = torch.ones(12)
    params, grad = [memory[:4], memory[4:8]], memory[8:]

    OPS.sgd_step_(params, [grad, grad], [], **{**SGD, "lr": 0.5})

    assert memory.tolist() == [0.5] * 8 + [1.0] * 4


def test_tensors_without_elements_share_nothing() -> None:
    empty = torch.ones(0)

    OPS.sgd_step_([empty], [empty], [], **SGD)
