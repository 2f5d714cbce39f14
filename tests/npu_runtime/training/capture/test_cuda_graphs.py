"""A capture asks the device in one order, and leaves everything as it was where that fails."""

import pytest
import torch

from npu_ir import ExecutionError
from npu_runtime import CaptureError
from npu_runtime.training.capture.capture_state import activity, in_capture
from npu_runtime.training.capture.cuda_graphs import GraphCapture
from tests.npu_runtime.training.capture.counting_program import CountingProgram
from tests.npu_runtime.training.capture.fake_graphs import FakeGraphs


def captured(device: FakeGraphs, program: CountingProgram | None = None) -> tuple[GraphCapture, list[bool]]:
    program, seen = program or CountingProgram(), []
    plain = program.run

    def run() -> None:
        device.calls.append("run")
        seen.append(in_capture())
        plain()

    program.run = run  # type: ignore[assignment, method-assign]
    return GraphCapture(program, device, generators=[torch.Generator()]), seen


def test_the_step_is_warmed_up_on_the_stream_and_in_the_memory_of_the_capture() -> None:
    device = FakeGraphs()

    _, seen = captured(device)

    assert device.calls == [
        "open_pool",
        "make_graph(1 generators)",
        "side_stream",
        "in_pool",
        "run",
        "run",
        "out_of_pool",
        "synchronize",
        "begin",
        "run",
        "end",
        "join",
    ]
    assert seen == [False, False, True]


@pytest.mark.smoke
def test_a_replay_launches_the_graph_and_runs_nothing_else() -> None:
    device = FakeGraphs()
    capture, _ = captured(device)
    before = len(device.calls)

    capture.replay()

    assert device.calls[before:] == ["replay"]
    assert not in_capture()


def test_the_stream_of_somebody_elses_capture_is_refused() -> None:
    device = FakeGraphs(is_capturing=True)

    with pytest.raises(
        CaptureError, match="the current stream is being captured already: captures do not nest"
    ):
        captured(device)
    assert device.calls == []


def test_a_capture_in_a_capture_is_refused() -> None:
    device = FakeGraphs()

    with activity("capture"), pytest.raises(CaptureError, match="a capture is not allowed in a capture"):
        captured(device)
    assert device.calls == []


@pytest.mark.parametrize("fails_at", ["begin", "end"])
def test_a_recording_that_fails_is_discarded(fails_at: str) -> None:
    device, program = FakeGraphs(fails_at=fails_at), CountingProgram()

    with pytest.raises(
        CaptureError, match="the step cannot be captured: RuntimeError: operation not permitted"
    ):
        captured(device, program)

    assert device.calls[-2:] == ["discard", "join"]
    assert not in_capture()


def test_a_step_that_fails_while_it_is_recorded_names_itself() -> None:
    class Failing(CountingProgram):
        def run(self, numbers: float = 0.5) -> None:
            super().run(numbers)
            if len(self.seen) == 3:
                raise ExecutionError("aten.nonzero.default failed", where="node 'nonzero', step.py:7")

    device = FakeGraphs()

    with pytest.raises(ExecutionError, match=r"aten.nonzero.default failed(?s:.*)step.py:7"):
        captured(device, Failing())
    assert device.calls[-4:] == ["begin", "run", "discard", "join"]


def test_a_warm_up_that_fails_leaves_the_state_as_it_was() -> None:
    device, program = FakeGraphs(), CountingProgram(fails_at=2)

    with pytest.raises(RuntimeError, match="the device is gone"):
        captured(device, program)

    assert int(program.state["step"]) == 0
    assert device.calls[-2:] == ["out_of_pool", "join"]
    assert "begin" not in device.calls
