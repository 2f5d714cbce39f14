"""Steps recorded by a device: numbers are filled in before each replay; failed recordings are planned."""

from collections.abc import Mapping
from typing import Any

import pytest
import torch

from npu_ir import parse_ir
from npu_runtime import CaptureError, CompileArtifact, check_replay, compile_and_capture
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

    def end(self, graph: Any) -> None:
        super().end(graph)
        self._before.restore()

    def replay(self, graph: Any) -> None:
        super().replay(graph)
        self.program.run()


def recorded(device: RecordingGraphs, artifact: CompileArtifact) -> CompileArtifact:
    device.program = artifact.program  # type: ignore[attr-defined]
    return artifact


def test_a_recorded_step_takes_its_batch_and_changes_its_state() -> None:
    weights = {"w": torch.tensor([1.0, 2.0, 3.0])}
    device = RecordingGraphs(weights)

    made = compile_and_capture(
        parse_ir(ADDING), weights=weights, passes=None, capture="require", graph_device=device
    )
    artifact = recorded(device, made)
    assert weights["w"].tolist() == [1.0, 2.0, 3.0]

    assert artifact.capture_state == "cuda-graph"
    assert artifact.replay(torch.ones(3)).tolist() == [2.0, 3.0, 4.0]
    assert artifact.replay(torch.full((3,), 2.0)).tolist() == [4.0, 5.0, 6.0]
    assert device.calls.count("replay") == 2
    assert check_replay(artifact, torch.ones(3)).ok


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


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam, torch.optim.RMSprop])
def test_hyperparameters_are_tensors_that_are_filled_before_each_replay(
    kind: type[torch.optim.Optimizer],
) -> None:
    torch.manual_seed(5)
    model, twin = Mlp(), Mlp()
    twin.load_state_dict(model.state_dict())
    optimizers = [kind(item.parameters(), lr=0.02) for item in (model, twin)]  # type: ignore[call-arg]
    batch = torch.randn(3, 7), torch.randn(3, 5)
    mse = torch.nn.functional.mse_loss
    planned = compile_and_capture(twin, optimizers[1], mse, batch, passes=None, capture="require")
    device = RecordingGraphs({})
    source = trace_step(model, optimizers[0], mse, batch)
    device.hold(source.weights())
    artifact = recorded(
        device, compile_and_capture(source, passes=None, capture="require", graph_device=device)
    )

    assert artifact.capture_state == "cuda-graph"
    for step in range(4):
        for optimizer in optimizers:
            optimizer.param_groups[0]["lr"] = 0.01 * (step + 1)
        torch.manual_seed(step)
        expected = planned.replay(*batch)
        torch.manual_seed(step)
        loss = artifact.replay(*batch)

        torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-6)
    for name, item in artifact.state.items():
        torch.testing.assert_close(item, planned.state[name], rtol=1e-5, atol=1e-6)
    assert check_replay(artifact, *batch).ok
