"""Every op, every case of the table, every device here."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from npu_cuda import _C
from npu_cuda.errors import InvalidArgumentError
from npu_cuda.testing import Case, OpRow, Refusal, rows, run_case, run_refusal
from npu_cuda.testing.memory import CallMemory, pack_attrs
from npu_cuda.testing.runs import kernels_of

DEVICES = [device["name"] for device in _C.devices()]


def table(kind: str) -> Iterator[object]:
    for row in rows():
        for device in DEVICES:
            for entry in getattr(row, kind)():
                yield pytest.param(row, entry, device, id=f"{row.name}-{device}-{entry.name}")


@pytest.mark.parametrize(("row", "case", "device"), list(table("cases")))
def test_case_gives_the_reference_however_it_is_called(row: OpRow, case: Case, device: str) -> None:
    outcomes = list(run_case(row, case, device))

    assert any(outcome.way == "launch_by_id" for outcome in outcomes)
    assert [outcome for outcome in outcomes if not outcome.passed] == []


@pytest.mark.parametrize(("row", "refusal", "device"), list(table("refusals")))
def test_refusal_has_its_status_and_reason(row: OpRow, refusal: Refusal, device: str) -> None:
    outcomes = list(run_refusal(row, refusal, device))

    assert [outcome for outcome in outcomes if not outcome.passed] == []


def takes(kernel: str, row: OpRow, case: Case, device: str) -> bool:
    memory = CallMemory.of(case, device)
    try:
        _C.launch_by_id(kernel, *memory.tensors(), *pack_attrs(row.schema, case.attrs))
    except InvalidArgumentError:
        return False
    return True


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("row", rows(), ids=lambda row: row.name)
def test_every_kernel_takes_some_case(row: OpRow, device: str) -> None:
    ours = {kernel["id"] for kernel in _C.kernels() if kernel["origin"] == "npu-cuda"}

    for kernel in ours.intersection(kernels_of(row, device)):
        assert any(takes(kernel, row, case, device) for case in row.cases()), kernel


def test_every_op_of_the_package_has_a_row() -> None:
    ours = {op["name"] for op in _C.ops() if op["origin"] == "npu-cuda"}

    assert {row.op for row in rows()} == ours


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.name)
def test_names_of_a_row_are_unique(row: OpRow) -> None:
    names = [entry.name for entry in (*row.cases(), *row.refusals())]

    assert len(names) == len(set(names))
