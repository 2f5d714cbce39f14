"""State is copied between tensors with data and memory; others are refused by name, and nothing changes."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._subclasses import FakeTensorMode

from npu_ir import ExecutionError, WeightError
from npu_runtime import TrainStep, compile_and_capture, compile_ir
from npu_runtime._torch.tensors import find_data_problem
from npu_runtime.errors import TracingError
from tests.support.rows import each_row

BATCH = torch.randn(5, 3), torch.randn(5, 4)
FAKE = FakeTensorMode()


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 4)
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.linear(x))


def trained(**options: Any) -> tuple[Normed, torch.optim.Optimizer, TrainStep]:
    model = Normed()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    step = TrainStep(model, optimizer, F.mse_loss, **options)
    step(*BATCH)
    return model, optimizer, step


def made_in(context: Any) -> Normed:
    with context:
        return Normed()


def expanded() -> Normed:
    model = Normed()
    model.norm.bias = nn.Parameter(torch.zeros(1).expand(4))
    return model


def of_integers() -> Normed:
    model = Normed()
    model.norm.register_buffer("running_mean", torch.zeros(4, dtype=torch.int64))
    return model


@each_row("make, reason", {
    "on meta": (lambda: made_in(torch.device("meta")),
        "linear.weight of the model is on the device meta: it has no memory to copy into\n  fix: give"),
    "fake": (lambda: made_in(FAKE), "linear.weight of the model is a FakeTensor: it has no memory"),
    "of inference": (lambda: made_in(torch.inference_mode()),
        "linear.weight of the model was made in inference mode: it cannot be written to"),
    "expanded": (expanded, "norm.bias of the model is expanded, or its elements share memory otherwise: it"),
    "integers": (of_integers, "norm.running_mean is torch.float32 in the trained model, and torch.int64"),
})  # fmt: skip
def test_state_is_not_copied_where_it_would_be_lost(make: Callable[[], nn.Module], reason: str) -> None:
    _, _, step = trained()
    other = make()
    held = {name: item for name, item in other.state_dict().items() if find_data_problem(item) is None}
    before = copy.deepcopy(held)

    with pytest.raises(TracingError, match=reason):
        step.sync_to(other)

    assert all(torch.equal(held[name], tensor) for name, tensor in before.items())


def test_state_is_copied_to_other_floating_point_dtypes() -> None:
    model, _, step = trained()
    half, double = Normed().half(), Normed().double()

    step.sync_to(half)
    step.sync_to(double)

    assert torch.equal(half.linear.weight, model.linear.weight.half())
    assert torch.equal(double.linear.weight, model.linear.weight.double())


def on_meta(state: Any) -> Any:
    if isinstance(state, torch.Tensor):
        return state.to("meta")
    return {key: on_meta(item) for key, item in state.items()} if isinstance(state, dict) else state


@each_row("change, reason", {
    "model on meta": (lambda state: {**state, "model": on_meta(state["model"])},
        "model.linear.weight of the state is on the device meta: it has no data"),
    "optimizer on meta": (lambda state: {**state, "optimizer": on_meta(state["optimizer"])},
        r"optimizer.state.0.step of the state is on the device meta: it has no data"),
    "fake": (lambda state: {**state, "model": {"x": FAKE.from_tensor(torch.ones(2))}},
        "model.x of the state is a FakeTensor"),
    "nothing": (lambda _: None, "has the keys 'model' and 'optimizer', not a NoneType"),
})  # fmt: skip
def test_a_state_without_data_is_not_loaded_in_part(change: Callable[[Any], Any], reason: str) -> None:
    model, _, step = trained()
    state = change(copy.deepcopy(step.state_dict()))
    step(*BATCH)
    before = copy.deepcopy(step.state_dict())

    with pytest.raises(TracingError, match=reason):
        step.load_state_dict(state)

    torch.testing.assert_close(step.state_dict(), before, rtol=0, atol=0)
    assert all(item.isfinite().all() for item in model.parameters())


def test_a_state_is_not_loaded_into_a_model_on_meta() -> None:
    _, _, step = trained()
    empty = made_in(torch.device("meta"))
    of_empty = TrainStep(empty, torch.optim.Adam(empty.parameters()), F.mse_loss)

    with pytest.raises(TracingError, match="linear.weight of the model is on the device meta"):
        of_empty.load_state_dict(step.state_dict())
    with pytest.raises(TracingError, match="linear.weight of the trained model is on the device meta"):
        of_empty.sync_to(Normed())


@pytest.mark.parametrize("backend", ["aten", "host"])
@pytest.mark.parametrize("capture", ["prefer", "off"])
def test_a_step_of_a_model_without_data_is_refused_and_its_graph_is_not(backend: str, capture: str) -> None:
    empty, fake = made_in(torch.device("meta")), made_in(FAKE)
    optimizers = [torch.optim.Adam(item.parameters()) for item in (empty, fake)]
    options: dict[str, Any] = {"backend": backend, "capture": capture}

    with pytest.raises(WeightError, match="the weight 'linear.weight' is on the device meta: it has no data"):
        TrainStep(empty, optimizers[0], F.mse_loss, **options)(*BATCH)
    with pytest.raises(TracingError, match="'linear.weight' is a FakeTensor: it has no data"):
        TrainStep(fake, optimizers[1], F.mse_loss, **options)(*BATCH)

    assert len(compile_ir(empty, optimizers[0], F.mse_loss, BATCH))


@pytest.mark.parametrize("capture", ["prefer", "off"])
def test_a_step_that_updates_an_expanded_parameter_is_refused_before_it_runs(capture: str) -> None:
    model = expanded()
    before = copy.deepcopy(model.state_dict())
    step = TrainStep(model, torch.optim.SGD(model.parameters(), lr=0.1), F.mse_loss, capture=capture)

    with pytest.raises(WeightError, match="the step updates 'norm.bias', which is expanded"):
        step(*BATCH)

    assert all(torch.equal(model.state_dict()[name], tensor) for name, tensor in before.items())


@pytest.mark.parametrize("backend", ["aten", "host"])
@pytest.mark.parametrize("capture", ["prefer", "off"])
def test_a_batch_of_fake_tensors_is_refused_by_name(backend: str, capture: str) -> None:
    _, _, step = trained(backend=backend, capture=capture)
    before = copy.deepcopy(step.state_dict())
    batch = [FAKE.from_tensor(item) for item in BATCH]

    with pytest.raises(ExecutionError, match=r"input %batch0 is a FakeTensor: it has no data\n"):
        step(*batch)
    with pytest.raises(ExecutionError, match=r"step 1 of run: input %batch0 is a FakeTensor"):
        step.run([batch] * 3)

    torch.testing.assert_close(step.state_dict(), before, rtol=0, atol=0)


@pytest.mark.parametrize("backend", ["aten", "host"])
def test_a_step_within_a_mode_of_fake_tensors_is_refused_and_changes_nothing(backend: str) -> None:
    """A batch would be copied in by PyTorch, which does nothing there; native kernels would still run."""
    model, optimizer, step = trained(backend=backend)
    artifact = compile_and_capture(model, optimizer, F.mse_loss, BATCH, backend=backend)
    step(*BATCH)
    before = copy.deepcopy(step.state_dict())

    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        batch = [mode.from_tensor(item) for item in BATCH]
        for given in (BATCH, batch):
            with pytest.raises(TracingError, match="a training step is called within FakeTensorMode, which"):
                step(*given)
        with pytest.raises(TracingError, match="a replay is called within FakeTensorMode"):
            artifact.step(BATCH, artifact.current_numbers() or ())

    torch.testing.assert_close(step.state_dict(), before, rtol=0, atol=0)
    assert step(*BATCH).isfinite()
