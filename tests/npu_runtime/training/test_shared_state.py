"""An artifact shares the state of the optimizer: it is saved, loaded, and used in eager."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn, optim
from torch.nn import functional as F

from npu_runtime import CaptureError, CompileArtifact, check_replay, compile_and_capture
from npu_runtime.training.trace import trace_step
from tests.support.tiers import thin
from tests.support.training.cases import case_named
from tests.support.training.eager import full_state, step_by_hand
from tests.support.training.full_state import require_same
from tests.support.training.optimizers import recipe_named

CASE = case_named("mlp")
RECIPES = ["SGD, nesterov", "Adam, amsgrad", "AdamW, amsgrad, maximize", "NAdam", "ASGD", "Muon"]
ADAMS = ["Adam", "SGD, momentum"]
Batch = tuple[Tensor, ...]


def parts(name: str = "Adam") -> tuple[nn.Module, optim.Optimizer]:
    model = CASE.model()
    return model, recipe_named(name).make(CASE, model)


def captured(model: nn.Module, optimizer: optim.Optimizer, **options: Any) -> CompileArtifact:
    return compile_and_capture(model, optimizer, F.mse_loss, CASE.batches(1)[0], **options)


def trained_in_eager(name: str, batches: list[Batch]) -> tuple[nn.Module, optim.Optimizer]:
    model, optimizer = parts(name)
    step = step_by_hand(model, optimizer)
    for batch in batches:
        step(*batch)
    return model, optimizer


def require_close(model: nn.Module, optimizer: optim.Optimizer, expected: tuple[Any, Any]) -> None:
    found, wanted = full_state(model, optimizer), full_state(*expected)
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", thin(RECIPES, 2))
def test_eager_steps_go_on_behind_replays(name: str) -> None:
    model, optimizer = parts(name)
    batches = CASE.batches(8)
    artifact = captured(model, optimizer)

    for batch in batches[:5]:
        artifact.replay(*batch)
    require_close(model, optimizer, trained_in_eager(name, batches[:5]))
    eager = step_by_hand(model, optimizer)
    for batch in batches[5:]:
        eager(*batch)

    require_close(model, optimizer, trained_in_eager(name, batches))


@pytest.mark.parametrize("capture", ["require", "off"])
@pytest.mark.parametrize("name", ADAMS)
def test_replays_go_on_behind_eager_steps_and_loaded_checkpoints(name: str, capture: str) -> None:
    model, optimizer = parts(name)
    batches = CASE.batches(9)
    artifact = captured(model, optimizer, capture=capture)

    for index, batch in enumerate(batches):
        if index in (0, 4):
            step_by_hand(model, optimizer)(*batch)
        elif index == 6:
            optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))  # state in memory of its own
            artifact.run_ir(*batch, commit=True)
        else:
            artifact.replay(*batch)

    require_close(model, optimizer, trained_in_eager(name, batches))


def test_two_artifacts_of_one_optimizer_share_its_state() -> None:
    model, optimizer = parts()
    batches = CASE.batches(6)
    artifacts = [captured(model, optimizer), captured(model, optimizer)]

    for index, batch in enumerate(batches):
        artifacts[index % 2].replay(*batch)

    require_close(model, optimizer, trained_in_eager("Adam", batches))


@pytest.mark.parametrize(("name", "switch"), [("Adam", "maximize"), ("SGD, momentum", "nesterov")])
def test_a_switch_that_the_step_was_not_traced_for_is_refused(name: str, switch: str) -> None:
    model, optimizer = parts(name)
    artifact, batch = captured(model, optimizer), CASE.batches(1)[0]
    before = copy.deepcopy(model.state_dict())
    optimizer.param_groups[0][switch] = True

    with pytest.raises(CaptureError, match=f"where group0.{switch} is False, which is not so now"):
        artifact.replay(*batch)

    assert all(torch.equal(item, before[key]) for key, item in model.state_dict().items())


def test_state_that_was_dropped_begins_anew() -> None:
    model, optimizer = parts()
    artifact, batch = captured(model, optimizer), CASE.batches(1)[0]
    artifact.replay(*batch)
    optimizer.state.clear()

    artifact.replay(*batch)

    assert {item["step"].item() for item in optimizer.state.values()} == {1.0}


@pytest.mark.parametrize("take", [
    pytest.param(lambda artifact, batch: artifact.replay(*batch), id="replay"),
    pytest.param(lambda artifact, batch: artifact.run_ir(*batch, commit=True), id="run_ir"),
    pytest.param(lambda artifact, batch: artifact.step((), artifact.example_numbers), id="step"),
])  # fmt: skip
def test_whatever_takes_a_step_gives_the_optimizer_its_state(
    take: Callable[[CompileArtifact, Batch], Any],
) -> None:
    model, optimizer = parts()
    batch = CASE.batches(1)[0]
    artifact = captured(model, optimizer)

    take(artifact, batch)

    require_close(model, optimizer, trained_in_eager("Adam", [batch]))


def test_what_takes_no_step_leaves_the_optimizer_without_state() -> None:
    model, optimizer = parts()
    artifact, batch = captured(model, optimizer), CASE.batches(1)[0]

    check_replay(artifact, *batch)
    artifact.run_ir(*batch)
    artifact.mutations(*batch)
    artifact.prepare(batch, {})
    artifact.trace  # noqa: B018 - it is recorded

    assert not optimizer.state


def test_a_step_on_copies_of_a_model_leaves_its_optimizer_alone() -> None:
    model, optimizer = parts()
    batch = CASE.batches(1)[0]
    step = trace_step(model, optimizer, F.mse_loss, batch)
    copies = {name: item.detach().clone() for name, item in step.weights().items()}
    before = copy.deepcopy(model.state_dict())

    compile_and_capture(step, weights=copies).replay(*batch)

    assert not optimizer.state
    require_same(model.state_dict(), before)
    assert not torch.equal(copies["fc1.weight"], model.fc1.weight)


@pytest.mark.parametrize(("spoil", "message"), [
    pytest.param(lambda entry: entry.update(exp_avg=entry["exp_avg"].double()),
        r"(?s)another kind of 'fc1.weight.exp_avg' now.*compile the step again", id="another kind"),
    pytest.param(lambda entry: entry.pop("exp_avg"), "the optimizer has no 'fc1.weight.exp_avg' now",
        id="gone in part"),
])  # fmt: skip
def test_state_that_does_not_fit_is_refused(spoil: Callable[[dict[str, Tensor]], Any], message: str) -> None:
    model, optimizer = parts()
    artifact, batch = captured(model, optimizer), CASE.batches(1)[0]
    artifact.replay(*batch)
    spoil(optimizer.state[next(model.parameters())])

    with pytest.raises(CaptureError, match=message):
        artifact.replay(*batch)
