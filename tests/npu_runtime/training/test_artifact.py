"""An artifact replays a step: what it does is what the executor, the interpreter and eager PyTorch do."""

import copy
import gc
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from npu_ir import ExecutionError, Interpreter, parse_ir
from npu_runtime import CaptureError, CompileArtifact, compile_and_capture, get_artifact
from npu_runtime.training.capture.capture_state import activity, in_capture
from npu_runtime.training.trace import trace_step
from tests.support.backends.tiny_backend import TinyBackend
from tests.support.training.full_state import Mlp, require_same, state_bits
from tests.support.training.side_by_side import run_in_threads


def mlp() -> tuple[nn.Module, torch.optim.Optimizer, Any, tuple[torch.Tensor, ...]]:
    model = Mlp()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    return model, optimizer, F.mse_loss, (torch.randn(3, 7), torch.randn(3, 5))


def artifact_of(**options: Any) -> tuple[CompileArtifact, tuple[torch.Tensor, ...]]:
    *parts, batch = mlp()
    return compile_and_capture(*parts, batch, **{"passes": None, "capture": "require", **options}), batch


def test_nothing_has_changed_when_a_step_is_captured() -> None:
    model, optimizer, loss_fn, batch = mlp()
    before = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
    random = torch.get_rng_state()

    artifact = compile_and_capture(model, optimizer, loss_fn, batch, passes=None, warmup_runs=3)

    require_same(model.state_dict(), before[0])
    assert str(optimizer.state_dict()) == str(before[1])
    assert torch.equal(torch.get_rng_state(), random)
    for name, item in artifact.state.items():
        if name.endswith(("exp_avg", "exp_avg_sq", "step")):
            assert not item.any(), name


@pytest.mark.parametrize(
    "options", [{}, {"passes": "train"}, {"backend": TinyBackend()}], ids=["plain", "passes", "backend"]
)
def test_a_replay_does_what_executor_and_interpreter_do(options: dict[str, Any]) -> None:
    artifact, batch = artifact_of(**options)
    for step in range(3):
        interpreter = Interpreter(artifact.graph, artifact.weights)
        named = artifact.add_hyperparameters({})

        torch.manual_seed(step)
        expected, mutations = interpreter.run_flat(batch, named)
        torch.manual_seed(step)
        executed = artifact.mutations(*batch)
        torch.manual_seed(step)
        loss = artifact.replay(*batch)

        assert torch.equal(loss, expected[0])
        require_same(executed, mutations)
        require_same({name: artifact.weights[name].detach() for name in mutations}, mutations)


@pytest.mark.parametrize(
    ("capture", "state"), [("prefer", ("planned", "")), ("off", ("off", 'capture="off"'))]
)
def test_an_artifact_says_whether_it_is_captured(capture: str, state: tuple[str, str]) -> None:
    artifact, _ = artifact_of(capture=capture)

    assert (artifact.capture_state, artifact.reason) == state


def test_the_optimizer_is_one_op_after_passes() -> None:
    artifact, _ = artifact_of(passes="train")

    artifact.assert_trace_matches_lowering()
    steps = [call for call in artifact.trace.calls if any("_step.default" in kind for kind in call.kinds)]
    assert [(call.phase, call.kernel[-14:]) for call in steps] == [("commit", "_step_.default")]


def test_the_trace_is_what_was_lowered() -> None:
    artifact, _ = artifact_of(backend=TinyBackend())

    artifact.assert_trace_matches_lowering()
    artifact.assert_trace_has("Gemm", artifact.lowered.count("Gemm"))
    with pytest.raises(CaptureError, match="the trace has 3 ops 'Gemm', not 2"):
        artifact.assert_trace_has("Gemm", 2)


def test_a_trace_changes_nothing_and_is_made_when_it_is_asked_for() -> None:
    artifact, _ = artifact_of(trace=False)
    before = state_bits(artifact)

    calls = artifact.trace.calls

    assert state_bits(artifact) == before
    assert {call.phase for call in calls} == {"bind", "compute", "commit"}


def test_stages_are_dumped_and_a_second_capture_dumps_the_same(tmp_path: Path) -> None:
    torch.manual_seed(0)
    first, _ = artifact_of()
    torch.manual_seed(0)
    second, _ = artifact_of()

    files = first.dump(tmp_path / "first")
    again = second.dump(tmp_path / "second")

    names = ["20_ir", "30_lowered", "31_op_attrs", "40_plan", "50_runtime_trace"]
    assert [path.name for path in files] == [f"{name}.{end}" for name in names for end in ("txt", "json")]
    assert [path.read_bytes() for path in files] == [path.read_bytes() for path in again]
    assert json.loads((tmp_path / "first" / "40_plan.json").read_text())["arena_bytes"] > 0


def test_an_artifact_is_found_by_its_name_as_long_as_it_is_held() -> None:
    artifact, _ = artifact_of(name="held")

    assert get_artifact("held") is artifact
    del artifact
    gc.collect()
    with pytest.raises(CaptureError, match="there is no artifact 'held'(?s:.*)keep it"):
        get_artifact("held")


def test_ops_that_are_enforced_must_be_there() -> None:
    artifact_of(enforce_ops=["aten.mm.default"])
    with pytest.raises(CaptureError, match=r"has no op 'npu.adam_step.default'(?s:.*)aten.mm.default"):
        artifact_of(enforce_ops=["npu.adam_step.default"])


def test_a_graph_with_its_weights_is_a_step() -> None:
    model, optimizer, loss_fn, batch = mlp()
    step = trace_step(model, optimizer, loss_fn, batch)
    numbers = {"group0.weight_decay": 0, "group0.lr": 0.5, "group0.betas.0": 0.9, "group0.betas.1": 0.999}
    numbers["group0.eps"] = 1e-8

    artifact = compile_and_capture(step.graph, weights=step.weights(), passes=None, capture="require")
    before = model.first.weight.detach().clone()
    artifact.replay(*batch, hyperparameters=numbers)

    assert not torch.equal(model.first.weight, before)
    with pytest.raises(ExecutionError, match="hyperparameters"):
        artifact.replay(*batch)


def test_another_batch_is_refused_and_nothing_changes() -> None:
    artifact, batch = artifact_of()
    before = state_bits(artifact)

    with pytest.raises(ExecutionError, match=r"input %batch0 is f32\[4, 7\], the graph needs f32\[3, 7\]"):
        artifact.replay(torch.randn(4, 7), batch[1])

    before["random"] = state_bits(artifact)["random"]
    assert state_bits(artifact) == before


class FailingBackend(TinyBackend):
    name = "failing"
    fails = False

    def run(self, program: Any, inputs: Any) -> Any:
        if self.fails:
            raise RuntimeError("the device is gone")
        return super().run(program, inputs)


def test_a_step_that_fails_leaves_everything_as_it_was() -> None:
    backend = FailingBackend()
    artifact, batch = artifact_of(backend=backend)
    artifact.replay(*batch)
    before = state_bits(artifact)

    backend.fails = True
    with pytest.raises(ExecutionError, match="the device is gone"):
        artifact.replay(*batch)
    assert state_bits(artifact) == before
    assert not in_capture()

    backend.fails = False
    artifact.replay(*batch)
    assert state_bits(artifact) != before


def test_memory_that_was_exchanged_is_noticed_and_can_be_bound() -> None:
    model, optimizer, loss_fn, batch = mlp()
    artifact = compile_and_capture(model, optimizer, loss_fn, batch, passes=None)
    model.first.weight.data = model.first.weight.detach() + 1

    with pytest.raises(
        CaptureError, match="'first.weight' was given other memory after the step was captured"
    ):
        artifact.replay(*batch)
    artifact.rebind(artifact.weights)
    before = model.first.weight.detach().clone()
    artifact.replay(*batch)

    assert not torch.equal(model.first.weight, before)


def test_a_branch_that_does_not_hold_any_more_is_refused() -> None:
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def loss(y: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return F.mse_loss(y, target) * (2 if optimizer.param_groups[0]["lr"] > 0.05 else 1)

    batch = torch.randn(4, 3), torch.randn(4, 2)
    artifact = compile_and_capture(model, optimizer, loss, batch, passes=None)
    artifact.replay(*batch)
    optimizer.param_groups[0]["lr"] = 0.01

    with pytest.raises(CaptureError, match="the step was traced where .*group0.lr.*, which is not so now"):
        artifact.replay(*batch)


def test_captures_do_not_nest() -> None:
    artifact, batch = artifact_of()

    with activity("capture"):
        with pytest.raises(CaptureError, match="compile_and_capture is not allowed in a capture"):
            artifact_of()
        with pytest.raises(CaptureError, match="a replay is not allowed in a capture"):
            artifact.replay(*batch)


def test_threads_replay_one_after_another() -> None:
    artifact, batch = artifact_of()

    run_in_threads(3, lambda _: [artifact.replay(*batch) for _ in range(20)])

    assert float(artifact.state["first.weight.step"]) == 60


SYMBOLIC = """
graph "open" {
  symbol s0 in [2, 8]
  input %x: f32[s0, 3]
  param %w: f32[3]
  %y: f32[s0, 3] = aten.mul.Tensor(%x, %w)
  %z: f32[3] = aten.sum.dim_IntList(%y) {dim=[0]}
  update %w = %z
  return %y
}
"""


def test_what_cannot_be_captured_runs_op_by_op_and_says_why() -> None:
    weight = torch.tensor([1.0, 2.0, 3.0])
    graph = parse_ir(SYMBOLIC)

    artifact = compile_and_capture(graph, weights={"w": weight}, passes=None)
    result = artifact.replay(torch.ones(2, 3))
    assert torch.equal(result, torch.tensor([[1.0, 2.0, 3.0]] * 2))
    assert weight.tolist() == [2.0, 4.0, 6.0]
    assert artifact.replay(torch.ones(4, 3)).shape == (4, 3)
    assert weight.tolist() == [8.0, 16.0, 24.0]

    assert artifact.capture_state == "off"
    assert artifact.reason.startswith("symbolic-size: %x is f32[s0, 3]")
    assert "because: symbolic-size" in str(artifact)
    with pytest.raises(CaptureError, match="'open' has no trace: it is not captured(?s:.*)symbolic-size"):
        artifact.trace  # noqa: B018 - asking raises
    with pytest.raises(CaptureError, match="'open' cannot be captured(?s:.*)graph.specialize"):
        compile_and_capture(graph, weights={"w": weight}, passes=None, capture="require")


@pytest.mark.parametrize("size", ["s0", "2"])
def test_a_batch_that_a_graph_updates_is_written_to_whatever_runs_it(size: str) -> None:
    symbol = "  symbol s0 in [2, 8]\n" if size == "s0" else ""
    graph = parse_ir(
        f'graph "halving" {{\n{symbol}  input %x: f32[3]\n  input %y: f32[{size}]\n'
        f"  %z: f32[{size}] = aten.mul.Scalar(self=%y) {{other=0.5}}\n  update %y = %z\n  return %x\n}}\n"
    )
    x, y = torch.ones(3), torch.ones(2)
    artifact = compile_and_capture(graph, example_batch=(x, y), passes=None)
    assert y.tolist() == [1, 1]

    artifact.replay(x, y)

    assert artifact.capture_state == ("off" if symbol else "planned")
    assert (x.tolist(), y.tolist()) == ([1, 1, 1], [0.5, 0.5])


def test_a_weight_that_cannot_be_changed_in_its_memory_is_refused_where_it_must_be_captured() -> None:
    graph = parse_ir(
        'graph "g" {\n  input %x: f32[2, 3]\n  param %w: f32[2, 3]\n'
        "  %y: f32[2, 3] = aten.add.Tensor(%x, %w)\n  update %w = %y\n  return %y\n}\n"
    )
    weight = torch.zeros(3, 2).t()

    with pytest.raises(CaptureError, match="'g' cannot be captured: .* 'w' in its own memory"):
        compile_and_capture(graph, weights={"w": weight}, passes=None, capture="require")
    artifact = compile_and_capture(graph, weights={"w": weight}, passes=None)
    artifact.replay(torch.ones(2, 3))

    assert artifact.capture_state == "off"
    assert "in its own memory" in artifact.reason
    assert torch.equal(weight, torch.ones(2, 3))


def test_a_mode_that_does_not_exist_is_refused() -> None:
    with pytest.raises(CaptureError, match="there is no capture mode 'always'(?s:.*)require, prefer, off"):
        artifact_of(capture="always")


def test_a_cache_that_is_not_a_bool_is_refused() -> None:
    with pytest.raises(
        CaptureError, match="cache= is True or False, not 'yes'(?s:.*)NPU_CACHE says in which"
    ):
        artifact_of(cache="yes")


def test_an_artifact_is_found_by_a_name_alone() -> None:
    with pytest.raises(CaptureError, match=r"there is no artifact \['held'\]"):
        get_artifact(["held"])  # type: ignore[arg-type]
