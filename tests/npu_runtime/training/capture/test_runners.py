"""Steps recorded by a device: numbers are filled in before each replay; failed recordings are planned."""

import functools
from collections.abc import Callable, Mapping
from typing import Any
from unittest.mock import patch

import pytest
import torch

from npu_ir import parse_ir
from npu_runtime import CaptureError, check_replay, compile_and_capture
from npu_runtime.planned import PlannedProgram
from npu_runtime.training.capture.snapshots import Snapshot
from npu_runtime.training.trace import trace_step
from tests.npu_runtime.training.capture.fake_graphs import FakeGraphs
from tests.support.training.full_state import Mlp

ADDING = (
    'graph "adding" {\n  input %x: f32[3]\n  param %w: f32[3]\n'
    "  %y: f32[3] = aten.add.Tensor(%w, %x)\n  update %w = %y\n  return %y\n}\n"
)


class RecordingGraphs(FakeGraphs):
    """Records as a device does: what runs meanwhile has no effect, and a replay does it."""

    def __init__(self, state: Mapping[str, torch.Tensor], **options: Any) -> None:
        super().__init__(**options)
        self._state = state

    def hold(self, state: Mapping[str, torch.Tensor]) -> None:
        """Take what a recording must not change."""
        self._state = state

    def begin(self, graph: Any, pool: Any) -> None:
        super().begin(graph, pool)
        self._before = Snapshot(self._state.values())
        run = PlannedProgram.run

        def record(program: PlannedProgram, *numbers: Any) -> Any:
            self._launch = functools.partial(run, program, *numbers)
            return self._launch()

        self._recording = patch.object(PlannedProgram, "run", record)
        self._recording.start()

    def end(self, graph: Any) -> None:
        self._recording.stop()
        super().end(graph)
        self._before.restore()

    def replay(self, graph: Any) -> None:
        super().replay(graph)
        self._launch()


def test_a_recorded_step_takes_its_batch_and_changes_its_state() -> None:
    weights = {"w": torch.tensor([1.0, 2.0, 3.0])}
    device = RecordingGraphs(weights)

    artifact = compile_and_capture(
        parse_ir(ADDING), weights=weights, passes=None, capture="require", graph_device=device
    )
    assert weights["w"].tolist() == [1.0, 2.0, 3.0]

    assert artifact.capture_state == "cuda-graph"
    assert artifact.replay(torch.ones(3)).tolist() == [2.0, 3.0, 4.0]
    assert artifact.replay(torch.full((3,), 2.0)).tolist() == [4.0, 5.0, 6.0]
    assert device.calls.count("replay") == 2
    assert check_replay(artifact, torch.ones(3)).ok


SCALING = (
    'graph "scaling" {\n  input %x: f32[3]\n  input %by: float\n  input %power: float\n'
    "  param %w: f32[3]\n"
    '  %t: f32[] = aten.scalar_tensor.default(s=%by) {dtype=f32, device=device("meta")}\n'
    "  %m: f32[3] = aten.mul.Tensor(%x, %t)\n"
    "  %p: f32[3] = aten.pow.Tensor_Scalar(self=%m, exponent=%power)\n"
    "  %y: f32[3] = aten.add.Tensor(%w, %p)\n  update %w = %y\n  return %p\n}\n"
)


def test_a_planned_step_reads_numbers_that_passes_made_tensors_in_memory() -> None:
    weights = {"w": torch.zeros(3)}
    artifact = compile_and_capture(parse_ir(SCALING), weights=weights, passes=None, capture="require")
    assert artifact.capture_state == "planned"
    assert artifact.program is not None
    assert artifact.program.numbers == ("power",)  # no kernel takes a tensor for it here

    x = torch.tensor([1.0, 2.0, 3.0])
    assert artifact.replay(x, 2.0, 2.0).tolist() == [4.0, 16.0, 36.0]
    assert artifact.replay(x, 2.0, 1.0).tolist() == [2.0, 4.0, 6.0]
    assert artifact.replay(x, 0.5, 1.0).tolist() == [0.5, 1.0, 1.5]
    assert weights["w"].tolist() == [6.5, 21.0, 43.5]
    assert "by" in artifact.pointers()
    assert check_replay(artifact, x, 2.0, 2.0).ok


@pytest.mark.parametrize("capture", ["prefer", "require"])
def test_a_recording_that_fails_leaves_the_planned_program(capture: str) -> None:
    weights = {"w": torch.tensor([1.0, 2.0, 3.0])}
    device = RecordingGraphs(weights, fails_at="end")
    options: dict[str, Any] = {"weights": weights, "passes": None, "graph_device": device}

    if capture == "require":
        with pytest.raises(CaptureError, match="'adding' cannot be captured: the step cannot be captured"):
            compile_and_capture(parse_ir(ADDING), capture=capture, **options)
        return
    artifact = compile_and_capture(parse_ir(ADDING), capture=capture, **options)

    assert artifact.capture_state == "planned"
    assert "operation not permitted when stream is capturing" in artifact.reason
    assert artifact.replay(torch.ones(3)).shape == (3,)


def test_a_step_in_the_capture_of_somebody_else_is_refused_before_anything_runs() -> None:
    weights = {"w": torch.zeros(3)}
    device = RecordingGraphs(weights, is_capturing=True)

    with pytest.raises(CaptureError, match="captures do not nest"):
        compile_and_capture(parse_ir(ADDING), weights=weights, passes=None, graph_device=device)
    assert device.calls == []


def test_a_number_that_an_op_needs_is_unknown_before_the_first_step_of_a_plain_graph() -> None:
    graph = parse_ir(
        "graph g {\n  input %x: f32[3]\n  input %p: float\n  param %w: f32[3]\n"
        "  %y: f32[3] = aten.leaky_relu.default(self=%x, negative_slope=%p)\n"
        "  update %w = %y\n  return %y\n}\n"
    )
    options: dict[str, Any] = {"weights": {"w": torch.zeros(3)}, "graph_device": RecordingGraphs({})}

    with pytest.raises(
        CaptureError,
        match=r"%p has to stay a Python number(?s:.*)leaky_relu(?s:.*)compile a traced step",
    ):
        compile_and_capture(graph, passes=None, capture="require", **options)


@pytest.mark.parametrize(("passes", "kind", "options", "later", "recordings"), [
    (None, torch.optim.SGD, {}, {}, 1),
    (None, torch.optim.Adam, {}, {"betas": (0.8, 0.9)}, 1),
    (None, torch.optim.RMSprop, {}, {}, 1),
    ("train", torch.optim.SGD, {"momentum": 0.9}, {"momentum": 0.5}, 2),
    ("train", torch.optim.Adam, {}, {"betas": (0.8, 0.9)}, 2),
    ("train", torch.optim.Adam, {}, {}, 1),
])  # fmt: skip
def test_hyperparameters_are_filled_before_a_replay_or_recorded_again(
    passes: str | None,
    kind: Callable[..., torch.optim.Optimizer],
    options: dict[str, Any],
    later: dict[str, Any],
    recordings: int,
) -> None:
    torch.manual_seed(5)
    model, twin = Mlp(), Mlp()
    twin.load_state_dict(model.state_dict())
    optimizers = [kind(item.parameters(), lr=0.02, **options) for item in (model, twin)]
    batch = torch.randn(3, 7), torch.randn(3, 5)
    mse = torch.nn.functional.mse_loss
    planned = compile_and_capture(twin, optimizers[1], mse, batch, passes=None, capture="require")
    device = RecordingGraphs({})
    source = trace_step(model, optimizers[0], mse, batch)
    device.hold(source.weights())
    artifact = compile_and_capture(source, passes=passes, capture="require", graph_device=device)

    assert artifact.capture_state == "cuda-graph"
    for step in range(4):
        for optimizer in optimizers:
            optimizer.param_groups[0].update(lr=0.01 * (step + 1), **(later if step > 1 else {}))
        torch.manual_seed(step)
        expected = planned.replay(*batch)
        torch.manual_seed(step)
        loss = artifact.replay(*batch)

        torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-6)
    for name, item in artifact.state.items():
        torch.testing.assert_close(item, planned.state[name], rtol=1e-5, atol=1e-6)
    assert device.calls.count("begin") == recordings
    assert check_replay(artifact, *batch).ok
