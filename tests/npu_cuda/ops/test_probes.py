"""Every op, every case of the table, every device here."""

import pytest

from npu_cuda import _C
from npu_cuda.testing import OpRow, rows, run_case, run_refusal
from npu_cuda.testing.runs import kernels_of
from tests.support.tiers import is_exhaustive

DEVICES = [device["name"] for device in _C.devices()]
EACH = [
    pytest.param(row, device, id=f"{row.name}-{device}")
    for row in rows()
    for device in DEVICES
    if kernels_of(row, device)
]


OURS = {kernel["id"] for kernel in _C.kernels() if kernel["origin"] == "npu-cuda"}


@pytest.mark.smoke
def test_an_op_gives_the_reference() -> None:
    row = rows()[0]

    assert [outcome for outcome in run_case(row, next(iter(row.cases())), "host") if not outcome.passed] == []


@pytest.mark.parametrize(("row", "device"), EACH)
def test_cases_give_the_reference_however_they_are_called_and_every_kernel_takes_some(
    row: OpRow, device: str
) -> None:
    taken = set()
    for number, case in enumerate(row.cases()):
        outcomes = list(run_case(row, case, device, is_whole=number % 3 == 0 or is_exhaustive()))

        kernels = {outcome.kernel for outcome in outcomes if outcome.way == "launch_by_id"}
        assert kernels, f"no kernel takes {case.name}"
        assert [outcome for outcome in outcomes if not outcome.passed] == []
        taken |= kernels
    assert OURS.intersection(kernels_of(row, device)) - taken == set()


@pytest.mark.parametrize(("row", "device"), EACH)
def test_refusals_have_their_status_and_reason(row: OpRow, device: str) -> None:
    outcomes = [outcome for refusal in row.refusals() for outcome in run_refusal(row, refusal, device)]

    assert [outcome for outcome in outcomes if not outcome.passed] == []


def test_every_op_of_the_package_has_a_row_of_unique_names() -> None:
    ours = {op["name"] for op in _C.ops() if op["origin"] == "npu-cuda"}

    assert {row.op for row in rows()} == ours
    for row in rows():
        names = [entry.name for entry in (*row.cases(), *row.refusals())]
        assert len(names) == len(set(names)), row.name


def test_every_op_but_those_of_the_host_has_kernels_for_every_device() -> None:
    without = {(row.op, device) for row in rows() for device in DEVICES if not kernels_of(row, device)}

    of_host = {"Attention", "AttentionGradient", "Conv", "ConvWeightGradient", "PackedConv", "Recurrent"}
    of_host |= {"PackMatrix", "PackedGemm", "DynamicQuantizedGemm", "TopK"}
    assert {row for row, _ in without} <= {"Fused", *of_host}
    assert {device for _, device in without} <= {"cuda:0"}
