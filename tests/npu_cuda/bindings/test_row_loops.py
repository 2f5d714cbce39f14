"""A native loop over rows goes on with what the last step has left, and refuses what does not fit."""

from typing import Any

import pytest
import torch

from npu_cuda import _C
from npu_cuda.errors import InvalidArgumentError
from tests.support.rows import each_row


def adding(x: torch.Tensor, y: torch.Tensor, total: torch.Tensor) -> _C.Program:
    """Return a program that computes ``total = x + y``."""
    program = _C.Program("host")
    spec = _C.TensorSpec("int64" if x.dtype is torch.int64 else "float32", list(x.shape))
    slots = [program.slot(spec) for _ in range(3)]
    program.add(_C.OpKind.EltwiseAdd, slots[:2], slots[2:])
    program.finalize()
    for slot, tensor in zip(slots, (x, y, total), strict=True):
        program.bind(slot, tensor)
    return program


def copying(source: torch.Tensor, target: torch.Tensor) -> _C.Program:
    """Return a program that computes ``target = source``."""
    program = _C.Program("host")
    spec = _C.TensorSpec(str(source.dtype).removeprefix("torch."), list(source.shape))
    slots = program.slot(spec), program.slot(spec)
    program.add(_C.OpKind.Copy, [slots[0]], [slots[1]])
    program.finalize()
    for slot, tensor in zip(slots, (source, target), strict=True):
        program.bind(slot, tensor)
    return program


def sums(**changes: Any) -> tuple[_C.RowLoop, torch.Tensor]:
    """Return a loop that adds up the rows 0, 1, 2, 3 and 4, and the sums after each."""
    x, total, made, kept = torch.zeros(2), torch.zeros(2), torch.zeros(2), torch.zeros(5, 2)
    rows = torch.arange(5.0)[:, None].expand(5, 2).contiguous()
    arguments: dict[str, Any] = {"programs": [adding(x, total, made), copying(made, total)], "inputs": [x]}
    arguments |= {"given": [rows], "results": [total], "kept": [kept], "count": 5}
    return _C.RowLoop(**(arguments | changes)), kept


def test_a_step_reads_what_the_last_one_has_left() -> None:
    loop, kept = sums()

    is_over = [loop.run(2, 60.0), loop.run(0, 60.0), loop.run(9, 60.0), loop.run(1, 60.0)]

    assert is_over == [False, False, True, True]
    assert loop.steps_taken == 5
    assert kept[:, 0].tolist() == kept[:, 1].tolist() == [0, 1, 3, 6, 10]


def test_a_run_returns_after_the_step_at_which_its_time_is_over() -> None:
    loop, _ = sums()

    assert loop.run(5, 0.0) is False
    assert loop.steps_taken == 1


def numbers(*rows: list[int], stop: list[int]) -> tuple[_C.RowLoop, torch.Tensor, torch.Tensor]:
    """Return a loop that takes these numbers one row after the other."""
    given = torch.tensor(rows)
    x, y, kept = given[0].clone(), given[0].clone(), torch.zeros_like(given)
    ended = torch.zeros(given.shape[1], dtype=torch.bool)
    loop = _C.RowLoop([copying(x, y)], [x], [given], [y], [kept], len(rows), stop, ended)
    return loop, kept, ended


def test_there_are_no_steps_after_each_number_has_been_one_of_those_that_stop() -> None:
    loop, kept, ended = numbers([1, 7], [8, 1], [1, 1], [2, 7], [2, 9], stop=[7, 8])

    assert loop.run(9, 60.0) is True
    assert loop.steps_taken == 2
    assert kept.tolist() == [[1, 7], [8, 1], [0, 0], [0, 0], [0, 0]]
    assert ended.tolist() == [True, True]


def test_numbers_that_have_ended_before_count() -> None:
    loop, _, ended = numbers([1, 5], [1, 5], [8, 5], [1, 5], stop=[8])
    ended[1] = True

    assert loop.run(9, 60.0) is True
    assert loop.steps_taken == 3


def test_a_step_that_fails_is_not_counted_and_names_its_program() -> None:
    x = torch.zeros(2)
    unbound = _C.Program("host")
    spec = _C.TensorSpec("float32", [2])
    slots = unbound.slot(spec), unbound.slot(spec)
    unbound.add("relu.f32.host", [slots[0]], [slots[1]])
    unbound.finalize()
    loop, kept = sums(programs=[copying(x, torch.zeros(2)), unbound])

    assert loop.failed_program is None
    with pytest.raises(InvalidArgumentError, match=r"slot 0 is not bound: bind\(\) a tensor to it"):
        loop.run(5, 60.0)

    assert (loop.steps_taken, loop.failed_program) == (0, 1)
    assert not kept.any()


@each_row(
    "changes, message",
    {
        "rows": ({"given": [torch.zeros(4, 2)]}, "RowLoop: given is not 5 times each of inputs"),
        "none": ({"kept": []}, "RowLoop: kept is not 5 times each of results"),
        "strides": ({"kept": [torch.zeros(2, 5).t()]}, r"RowLoop: kept\[0\] is not contiguous"),
        "flags": (
            {"stop": [1], "ended": torch.zeros(3, dtype=torch.bool)},
            "RowLoop: ended has not one bool for each int64 of the first result",
        ),
    },
)
def test_what_does_not_fit_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        sums(**changes)


def test_programs_are_programs() -> None:
    with pytest.raises(TypeError, match="RowLoop: programs must be a list of Program, not int"):
        sums(programs=[3])
