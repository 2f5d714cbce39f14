"""A native loop refuses what does not fit, and its two threads wait for each other."""

import threading
from typing import Any

import pytest
import torch

from npu_cuda import _C
from npu_cuda.errors import InvalidArgumentError


def doubling(x: torch.Tensor, y: torch.Tensor) -> _C.Program:
    """Return a program that computes ``y = x + x``."""
    program = _C.Program("host")
    spec = _C.TensorSpec("float32", list(x.shape))
    slots = program.slot(spec), program.slot(spec)
    program.add("add.f32.host", [slots[0], slots[0]], [slots[1]])
    program.finalize()
    for slot, tensor in zip(slots, (x, y), strict=True):
        program.bind(slot, tensor)
    return program


def make_loop(**changes: Any) -> tuple[_C.StepLoop, list[list[torch.Tensor]]]:
    x, y = torch.zeros(3), torch.zeros(3)
    slots = [[torch.zeros(3)] for _ in range(2)]
    arguments: dict[str, Any] = {"programs": [doubling(x, y)], "inputs": [x], "slots": slots, "results": [y]}
    return _C.StepLoop(**(arguments | changes)), slots


def test_each_step_takes_the_next_slot_and_fills_the_next_row() -> None:
    loop, slots = make_loop()
    rows = torch.zeros(5, 3)

    def fill() -> None:
        for number in range(5):
            slots[loop.reserve()][0].fill_(number)
            loop.push()
        loop.end()

    thread = threading.Thread(target=fill)
    thread.start()
    assert loop.run([rows[:3]], 3, 60.0) is False
    assert loop.steps_taken == 3
    is_over = loop.run([rows[3:]], 2, 60.0) or loop.run([rows[:0]], 0, 60.0)
    thread.join()

    assert is_over or loop.run([torch.zeros(1, 3)], 1, 60.0)
    assert loop.steps_taken == 5
    assert torch.equal(rows, 2 * torch.arange(5.0)[:, None].expand(5, 3))


def test_a_run_returns_when_its_time_is_over() -> None:
    loop, _ = make_loop()

    assert loop.run([torch.zeros(1, 3)], 1, 0.01) is False
    assert loop.steps_taken == 0


def test_a_closed_loop_has_no_free_slot() -> None:
    loop, _ = make_loop()
    loop.push()
    loop.push()
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(loop.reserve()))
    thread.start()

    loop.close()
    thread.join()

    assert found == [-1]


@pytest.mark.parametrize(("changes", "message"), [
    ({"slots": []}, "StepLoop: slots is empty"),
    ({"slots": [[torch.zeros(4)]]}, "StepLoop: a slot has other tensors than inputs"),
    ({"slots": [[]]}, "StepLoop: a slot has other tensors than inputs"),
    ({"results": [torch.zeros(3, 2).t()]}, r"StepLoop: results\[0\] is not contiguous"),
])  # fmt: skip
def test_what_does_not_fit_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        make_loop(**changes)


def test_programs_are_programs() -> None:
    with pytest.raises(TypeError, match="StepLoop: programs must be a list of Program, not int"):
        make_loop(programs=[3])


def test_rows_have_room_for_each_step() -> None:
    loop, _ = make_loop()

    with pytest.raises(InvalidArgumentError, match="run: rows is not 4 times each result"):
        loop.run([torch.zeros(3, 3)], 4, 1.0)
