"""A warm-up runs a step and leaves no trace: state and random generators are the same bit by bit."""

import pytest
import torch

from npu_runtime import CaptureError
from npu_runtime.training.capture.capture_state import activity
from npu_runtime.training.capture.snapshots import warmup_capture_safe
from tests.npu_runtime.training.capture.counting_program import CountingProgram


def bits(program: CountingProgram) -> dict[str, bytes]:
    return {name: tensor.contiguous().numpy().tobytes() for name, tensor in program.state.items()}


def test_nothing_has_changed_after_a_warm_up() -> None:
    program = CountingProgram()
    before, pointers = bits(program), [item.data_ptr() for item in program.state.values()]
    random = torch.get_rng_state()

    warmup_capture_safe(program, runs=3)

    assert program.seen == [0, 0, 0]
    assert bits(program) == before
    assert [item.data_ptr() for item in program.state.values()] == pointers
    assert torch.equal(torch.get_rng_state(), random)


def test_nothing_has_changed_after_a_run_that_failed() -> None:
    program = CountingProgram(fails_at=2)
    before, random = bits(program), torch.get_rng_state()

    with pytest.raises(RuntimeError, match="the device is gone"):
        warmup_capture_safe(program)

    assert len(program.seen) == 2
    assert bits(program) == before
    assert torch.equal(torch.get_rng_state(), random)


def test_numbers_are_passed_on() -> None:
    given: list[object] = []

    class Asking(CountingProgram):
        def run(self, numbers: float = 0.5) -> None:
            given.append(numbers)

    warmup_capture_safe(Asking(), runs=1, numbers=[0.25])
    warmup_capture_safe(Asking(), runs=1)

    assert given == [0.25, 0.5]


def test_generators_of_ones_own_are_put_back() -> None:
    generator = torch.Generator().manual_seed(3)
    before = generator.get_state()

    class Drawing(CountingProgram):
        def run(self, numbers: float = 0.5) -> None:
            self.state["m"].add_(torch.rand(3, generator=generator))

    warmup_capture_safe(Drawing(), generators=[generator])

    assert torch.equal(generator.get_state(), before)


def test_a_warm_up_in_a_capture_is_refused() -> None:
    program = CountingProgram()

    with activity("capture"), pytest.raises(CaptureError, match="a warm-up is not allowed in a capture"):
        warmup_capture_safe(program)
    assert program.seen == []


@pytest.mark.parametrize("runs", [0, -1, 1.5, True])
def test_a_warm_up_without_runs_is_refused(runs: object) -> None:
    with pytest.raises(CaptureError, match="a warm-up runs at least once, not"):
        warmup_capture_safe(CountingProgram(), runs)  # type: ignore[arg-type]
