"""Outcomes of cases: wrong results and stray writes are reported, with their place."""

import ctypes
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from npu_cuda.testing import Case, GuardedTensor, OpRow, TensorLayout, row_of, run_case
from npu_cuda.testing.memory import CallMemory, check_results
from tests.support.rows import each_row

Arrays = list[Any]


def case_of(row: OpRow, name: str) -> Case:
    (case,) = (case for case in row.cases() if case.name == name)
    return case


def with_element(value: float, output: int = 0) -> Callable[[Arrays], Arrays]:
    """Return a function that sets the first element of one of the arrays."""

    def change(arrays: Arrays) -> Arrays:
        changed = [np.array(array) for array in arrays]
        changed[output].flat[0] = value
        return changed

    return change


def with_first_off_by(difference: float) -> Callable[[Arrays], Arrays]:
    return lambda arrays: with_element(arrays[0].flat[0] + difference)(arrays)


@each_row("op, case, change, text", [
    ("relu", "float32, a vector", with_element(-3.0), "output 0: 1 elements differ, the first at [0]: "),
    ("sort", "float32[3, 33], 33 of axis -1", with_element(77, output=1),
        "output 1: 1 elements differ, the first at [0, 0]: "),
    ("gemm", "(2, 3, 4)", lambda arrays: [array * 1.01 for array in arrays],
        "output 0: the relative error is 9.90e-03, more than 2.00e-05"),
    ("gemm", "(31, 32, 33)", with_first_off_by(1e-3),
        "output 0: an element is off by 1.00e-03, more than 5.74e-05"),
    ("gemm", "(2, 3, 4)", with_element(float("nan")), "output 0: 1 elements are NaN on one side only"),
])  # fmt: skip
def test_a_result_that_is_not_the_reference_fails_however_the_op_is_called(
    op: str, case: str, change: Callable[[Arrays], Arrays], text: str
) -> None:
    row = row_of(op)
    wrong = replace(row, reference=lambda *given: change(row.reference(*given)))

    outcomes = list(run_case(wrong, case_of(row, case), "host"))

    assert {"op_call", "launch_by_id", "program", "graph"} <= {outcome.way for outcome in outcomes}
    for outcome in outcomes:
        assert (outcome.passed, outcome.wrong[: len(text)], outcome.status) == (False, text, "Ok")
        assert outcome.error > 0


@each_row("strides, place", {
    "before the tensor": (None, -1),
    "behind the tensor": (None, 6 * 4),
    "between its rows": ((5, 1), 3 * 4),
})  # fmt: skip
def test_a_write_outside_of_a_tensor_is_described(strides: tuple[int, ...] | None, place: int) -> None:
    tensors = [
        GuardedTensor(TensorLayout((2, 3), "float32", strides), "host", values)
        for values in (np.ones((2, 3)), None)
    ]
    for guarded in tensors:
        clean = guarded.describe_stray_writes(elements_too=True)
        ctypes.memset(guarded.tensor.data_ptr + place, 7, 1)

        text = f"1 bytes were written that are not its own, the first at byte {place} of {guarded.tensor!r}"
        assert (clean, guarded.describe_stray_writes(elements_too=False)) == ("", text)


def test_a_call_may_write_the_elements_of_outputs_alone() -> None:
    row = row_of("relu")
    case = case_of(row, "float32, a vector")
    for tensors, place, text in (
        ("inputs", 0, "input 0: 1 bytes were written that are not its own, the first at byte 0 of "),
        ("outputs", -1, "output 0: 1 bytes were written that are not its own, the first at byte -1 of "),
        ("outputs", 0, "output 0: 257 elements differ, the first at [0]: "),
    ):
        memory = CallMemory.of(case, "host")
        ctypes.memset(getattr(memory, tensors)[0].tensor.data_ptr + place, 7, 1)

        *_, wrong = check_results(row, case, memory)

        assert wrong.startswith(text)
