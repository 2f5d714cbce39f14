"""A call of `TrainStep`: its options, what it costs in Python, and what makes it look again."""

import copy
import gc
import inspect
import sys
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn, optim

import npu_runtime
from npu_ir import BackendError, ExecutionError
from npu_runtime import TracingError, TrainStep
from npu_runtime.training import batches, trace_step
from npu_runtime.training.capture.options import CaptureKeywords, CaptureOptions
from npu_runtime.training.options import StepKeywords, StepOptions
from tests.support.training.eager import step_by_hand

OPTIONS = {
    "name",
    "accumulate",
    "clip_grad_norm",
    "clip_grad_value",
    "autocast",
    "modules",
    "optimizers",
    "scaler",
}
CAPTURE = {"cache", "backend", "passes", "capture", "memory_budget_bytes"}
COMPILE = {"device", "weights", "warmup_runs", "warmup_sync", "validate", "trace", "enforce_ops"}


def linear_step(**options: Any) -> tuple[nn.Module, TrainStep, tuple[torch.Tensor, torch.Tensor]]:
    model = nn.Linear(4, 3)
    optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return model, TrainStep(model, optimizer, F.mse_loss, **options), (torch.randn(5, 4), torch.randn(5, 3))


@pytest.mark.smoke
def test_keywords_for_type_checkers_are_the_fields_of_the_options() -> None:
    for options, keywords in ((StepOptions, StepKeywords), (CaptureOptions, CaptureKeywords)):
        fields = {name: item.type for name, item in options.__dataclass_fields__.items()}

        assert {name: item.__forward_arg__ for name, item in keywords.__annotations__.items()} == fields


@pytest.mark.smoke
def test_help_shows_every_option_with_its_default() -> None:
    shown = {
        npu_runtime.compile_ir: OPTIONS,
        trace_step: OPTIONS,
        npu_runtime.check_capture: {"weights", "plan", "device", *OPTIONS},
        npu_runtime.compile_and_capture: {*OPTIONS, *CAPTURE, *COMPILE, "generators", "graph_device"},
        TrainStep: {*OPTIONS, *CAPTURE, "borrow"},
    }

    for function, names in shown.items():
        parameters = inspect.signature(function).parameters
        assert {name for name, item in parameters.items() if item.kind is item.KEYWORD_ONLY} == names
        assert parameters["accumulate"].default == 1


@pytest.mark.parametrize("function", [
    npu_runtime.compile_ir,
    trace_step,
    npu_runtime.check_capture,
    npu_runtime.compile_and_capture,
    TrainStep,
])  # fmt: skip
def test_an_option_that_does_not_exist_is_refused_with_the_one_that_does(function: Any) -> None:
    with pytest.raises(
        TypeError,
        match=r"\w+\(\) got an unexpected keyword argument 'acumulate' \(did you mean 'accumulate'\?\)",
    ):
        function(print, acumulate=2)


def test_a_parameter_of_the_function_itself_is_suggested_too() -> None:
    with pytest.raises(TypeError, match=r"TrainStep\(\) got .* 'captur' \(did you mean 'capture'\?\)"):
        TrainStep(nn.Linear(2, 2), captur="off")  # type: ignore[call-arg]


def test_a_backend_that_does_not_exist_is_refused_at_once() -> None:
    with pytest.raises(BackendError, match=r"there is no backend 'hots' \(did you mean 'host'\?\)"):
        linear_step(backend="hots")


def test_a_step_may_have_a_name() -> None:
    _, step, batch = linear_step(name="mine")
    step(*batch)

    assert step.graph.name == "mine"


def frames_of(call: Callable[[], Any]) -> list[list[str]]:
    """Return the stack of functions at each call within a call, but for what programs call."""
    stack: list[str] = []
    found: list[list[str]] = []

    def observe(frame: Any, event: str, _: Any) -> None:
        if event == "call":
            is_inside = any("npu-program/" in name and name.endswith(": run") for name in stack)
            stack.append(f"{frame.f_code.co_filename}: {frame.f_code.co_name}")
            if not is_inside:
                found.append(list(stack))
        elif event == "return" and stack:
            stack.pop()

    sys.setprofile(observe)
    try:
        call()
    finally:
        sys.setprofile(None)
    return found


def test_a_call_is_four_frames_deep_down_to_the_program() -> None:
    _, step, batch = linear_step()
    step(*batch)
    step(*batch)

    frames = frames_of(lambda: step(*batch))

    names = {tuple(name.rpartition(": ")[2] for name in stack[1:]) for stack in frames}
    commit = ("__call__", "call", "__call__")  # which Ctrl-C does not end in the middle
    assert names == {(), commit[:1], commit[:2], ("__call__", "call", "run"), commit, (*commit, "run")}


def test_a_nested_batch_is_taken_apart_by_generated_code_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 3)

        def forward(self, given: dict[str, Any], *, scale: float) -> torch.Tensor:
            return self.linear(given["x"]) * scale

    model = Net()
    step = TrainStep(model, optim.SGD(model.parameters(), lr=0.1), F.mse_loss)
    given, target = {"x": torch.randn(5, 4), "flag": True}, torch.randn(5, 3)
    losses = [step(given, target, scale=2.0), step(given, target, scale=2.0)]

    def refuse(*_: Any) -> Any:
        raise AssertionError("a batch of a known kind is not flattened")

    monkeypatch.setattr(batches, "flatten", refuse)
    losses.append(step(given, target, scale=2.0))

    assert losses[0] > losses[1] > losses[2]
    with pytest.raises(AssertionError, match="is not flattened"):
        step(given, target, scale=3.0)


def test_a_hook_that_runs_after_a_gradient_is_accumulated_is_noticed_after_the_capture() -> None:
    model, step, batch = linear_step()
    step(*batch)
    other = nn.Linear(2, 2)
    handle = other.register_forward_hook(lambda *_: None)
    step(*batch)
    handle.remove()

    model.weight.register_post_accumulate_grad_hook(lambda parameter: None)  # type: ignore[union-attr]

    with pytest.raises(TracingError, match="the parameter 'weight' has hooks"):
        step(*batch)


@pytest.fixture
def halving() -> tuple[nn.Linear, npu_runtime.CompileArtifact]:
    """Return a model, and its step on batches of five, which halves the targets in place."""
    model = nn.Linear(4, 3)
    optimizer = optim.SGD(model.parameters(), lr=0.1)

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        y.mul_(0.5)
        return loss

    example = torch.randn(5, 4), torch.ones(5, 3)
    return model, npu_runtime.compile_and_capture(step, example_batch=example)


def test_what_a_step_writes_into_its_batch_is_written_by_a_replay_too(halving: Any) -> None:
    _, artifact = halving
    x, y, transposed = torch.randn(5, 4), torch.ones(5, 3), torch.ones(3, 5).t()

    artifact.replay(x, y)
    artifact.replay(x, y)
    artifact.replay(x, transposed)

    assert torch.equal(y, torch.full((5, 3), 0.25))
    assert torch.equal(transposed, torch.full((5, 3), 0.5))


def test_a_target_that_cannot_be_written_to_is_refused_before_the_step(halving: Any) -> None:
    model, artifact = halving
    before = model.weight.detach().clone()
    with torch.inference_mode():
        made = torch.ones(5, 3)

    with pytest.raises(
        ExecutionError, match=r"writes to its input %batch1, but the tensor .* inference mode"
    ):
        artifact.replay(torch.randn(5, 4), made)
    with pytest.raises(ExecutionError, match="is expanded"):
        artifact.replay(torch.randn(5, 4), torch.ones(1, 3).expand(5, 3))

    assert torch.equal(model.weight.detach(), before)


def test_overlapping_tensors_are_refused_by_a_replay_too_if_the_step_writes_to_one() -> None:
    model = nn.Linear(4, 4)
    step = TrainStep(model, optim.SGD(model.parameters(), lr=0.1), lambda y, t: F.mse_loss(y, t.mul_(2)))
    rows = torch.randn(6, 4)
    for _ in range(2):
        step(rows[:3], rows[3:])
    before, weight = rows.clone(), model.weight.detach().clone()

    with pytest.raises(ExecutionError, match="inputs %batch1 and %batch0 share memory"):
        step(rows[:3], rows[2:5])

    assert torch.equal(rows, before)
    assert torch.equal(model.weight, weight)


def test_a_step_that_is_deleted_frees_model_and_optimizer_at_once() -> None:
    model = nn.Linear(4, 3)
    optimizer = optim.Adam(model.parameters())
    step = TrainStep(model, optimizer, F.mse_loss)
    for _ in range(3):
        step(torch.randn(5, 4), torch.randn(5, 3))
    held = [weakref.ref(item) for item in (model.weight, optimizer.state[model.weight]["exp_avg"], step)]

    gc.collect()
    gc.disable()
    try:
        del model, optimizer, step
        assert [item() for item in held] == [None] * 3
    finally:
        gc.enable()


def test_an_argument_that_is_called_hyperparameters_is_refused() -> None:
    _, step, batch = linear_step()

    with pytest.raises(TracingError, match="a batch has an argument called 'hyperparameters'"):
        step(*batch, hyperparameters=2.0)


def test_results_that_are_borrowed_are_those_of_the_next_step() -> None:
    _, step, batch = linear_step()
    step(*batch)
    artifact = step.artifact

    owned, borrowed = artifact.replay(*batch), artifact.replay(*batch, borrow=True)
    kept = owned.clone(), borrowed.clone()
    artifact.replay(*batch)

    assert torch.equal(owned, kept[0])
    assert not torch.equal(borrowed, kept[1])


@pytest.mark.parametrize("is_training", [True, False])
def test_norms_take_part_in_a_step_with_autocast(is_training: bool) -> None:
    norms = nn.BatchNorm2d(4), nn.GroupNorm(2, 4), nn.Flatten(), nn.LayerNorm(144)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), *norms).train(is_training)
    eager = copy.deepcopy(model)
    optimizers = [optim.SGD(item.parameters(), lr=0.1) for item in (model, eager)]
    step = TrainStep(model, optimizers[0], F.mse_loss, autocast=torch.bfloat16)
    x, target = torch.randn(5, 3, 8, 8), torch.randn(5, 144)

    actual = [step(x, target) for _ in range(3)]
    expected = []
    for _ in range(3):
        optimizers[1].zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = F.mse_loss(eager(x), target)
        loss.backward()
        optimizers[1].step()
        expected.append(loss.detach())

    torch.testing.assert_close(actual, expected, rtol=1e-2, atol=1e-2)
    for name, item in eager.state_dict().items():
        torch.testing.assert_close(model.state_dict()[name], item, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("backend", ["aten", "host"])
def test_a_gradient_of_zeros_without_memory_is_trained_with(backend: str) -> None:
    def train(make: Callable[..., Any]) -> list[torch.Tensor]:
        torch.manual_seed(0)
        model = nn.Linear(4, 3)
        optimizer = optim.SGD(model.parameters(), lr=0.1)
        step = make(model, optimizer, lambda x, y: F.mse_loss(x.sgn(), y) + x.square().sum())
        losses = [step(torch.randn(5, 4), torch.randn(5, 3)).detach() for _ in range(2)]
        return [*losses, *model.state_dict().values()]

    torch.testing.assert_close(train(partial(TrainStep, backend=backend)), train(step_by_hand))
