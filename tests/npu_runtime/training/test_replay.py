"""Replays are steps, to the bit: a thousand, with checkpoints, in every capture mode and backend."""

import copy
import io
import itertools
import re
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from npu_runtime import TrainStep
from npu_runtime.errors import CaptureError, FallbackWarning, TracingError
from tests.npu_runtime.training.ours import ReplayedStep
from tests.support.rows import each_row
from tests.support.tiers import thin
from tests.support.training.cases import case_named
from tests.support.training.eager import differences, full_state, step_by_hand, trained
from tests.support.training.models import MLP, Transformer
from tests.support.training.optimizers import recipe_named
from tests.support.training.side_by_side import adam, rows, sgd

MLP_CASE = case_named("mlp")


class Uncaptured(ReplayedStep):
    options = {"capture": "off"}  # noqa: RUF012


@pytest.mark.parametrize("make", [pytest.param(sgd, marks=pytest.mark.exhaustive), adam])
def test_a_thousand_replays_are_a_thousand_steps(make: Any) -> None:
    torch.manual_seed(0)
    model = MLP()
    models = [model, copy.deepcopy(model)]
    optimizers = [make(item) for item in models]
    captures = ("require", "off")
    steps = [
        TrainStep(*parts, F.mse_loss, capture=mode)
        for *parts, mode in zip(models, optimizers, captures, strict=True)
    ]
    batches = [rows() for _ in range(10)]

    for index in range(1000):
        for step, optimizer in zip(steps, optimizers, strict=True):
            optimizer.param_groups[0]["lr"] = 0.01 / (1 + index % 7)
            step(*batches[index % 10])

    found, wanted = (full_state(*pair) for pair in zip(models, optimizers, strict=True))
    assert differences([found], [wanted]) == []
    assert not torch.equal(found["fc1.weight"], wanted["fc1.weight"] * 0)


PAIRS = list(
    itertools.product(
        ("mlp", "cnn, batch norm", "embedding, tied weights", "4 microbatches", "transformer, dropout"),
        ("SGD, nesterov", "Adam"),
    )
)


@pytest.mark.parametrize("names", thin(PAIRS, 3, " / ".join))
def test_a_replay_gives_what_the_ops_one_by_one_give_to_the_bit(names: tuple[str, str]) -> None:
    pair = case_named(names[0]), recipe_named(names[1])

    assert differences(trained(ReplayedStep, *pair), trained(Uncaptured, *pair)) == []


@pytest.mark.parametrize("build", [MLP, pytest.param(Transformer, marks=pytest.mark.exhaustive)])
def test_training_goes_on_from_a_checkpoint_to_the_bit(build: Any) -> None:
    is_mlp = build is MLP
    loss = F.mse_loss if is_mlp else F.cross_entropy
    batch = rows() if is_mlp else (torch.randint(0, 20, (4, 6)), torch.randint(0, 5, (4,)))
    model = build()
    optimizer = adam(model)
    step = TrainStep(model, optimizer, loss)
    for _ in range(3):
        step(*batch)
    file = io.BytesIO()
    torch.save({**step.state_dict(), "random": torch.get_rng_state()}, file)
    losses = [step(*batch) for _ in range(3)]

    file.seek(0)
    kept = torch.load(file)
    other = build()
    optimizer_of_other = adam(other)
    resumed = TrainStep(other, optimizer_of_other, loss)
    resumed.load_state_dict({key: kept[key] for key in ("model", "optimizer")})
    torch.set_rng_state(kept["random"])
    again = [resumed(*batch) for _ in range(3)]

    assert all(map(torch.equal, losses, again))
    assert differences([full_state(other, optimizer_of_other)], [full_state(model, optimizer)]) == []


def test_state_is_given_to_another_model_and_optimizer() -> None:
    model, other = MLP(), MLP()
    optimizer, of_other = adam(model), adam(other)
    step = TrainStep(model, optimizer, F.mse_loss)
    step(*rows())

    step.sync_to(other, of_other)

    given = full_state(other, of_other)
    assert differences([given], [full_state(model, optimizer)]) == []
    step(*rows())
    assert differences([full_state(other, of_other)], [given]) == []


class Other(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Linear(3, width)
        self.second = nn.Linear(width, 2)


@each_row("model, make, reason", {
    "other names": (nn.Linear(3, 4), adam, "is of shape [4, 3] in the trained one, and not there here"),
    "other shapes": (Other(5), adam, "is of shape [4, 3] in the trained one, and of shape [5, 3] here"),
    "no model": (3, None, "expected a torch.nn.Module, got int"),
    "another optimizer": (Other(4), sgd, "expected an optimizer Adam, got SGD"),
    "another order": (Other(4), lambda model: adam(nn.ModuleList([model.second, model.first])),
        "parameter 0 of the optimizer is second.weight of the model, of the trained one first.weight"),
    "parameters of another model": (Other(4), lambda _: adam(Other(4)), "is None of the model"),
    "fewer parameters": (Other(4), lambda model: adam(model.first), "[2] parameters, the trained one of [4]"),
})  # fmt: skip
def test_state_is_not_given_to_what_has_other_parameters(model: Any, make: Any, reason: str) -> None:
    trained = Other(4)
    step = TrainStep(trained, adam(trained), F.mse_loss)
    optimizer = None if make is None else make(model)
    before = copy.deepcopy(model.state_dict()) if isinstance(model, nn.Module) else {}

    with pytest.raises(TracingError, match=re.escape(reason)):
        step.sync_to(model, optimizer)

    assert all(torch.equal(model.state_dict()[name], tensor) for name, tensor in before.items())


def test_state_is_given_to_layers_that_take_their_shapes_from_it() -> None:
    model, other = nn.Sequential(nn.Linear(3, 2)), nn.Sequential(nn.LazyLinear(2))
    step = TrainStep(model, adam(model), F.mse_loss)

    step.sync_to(other)

    assert torch.equal(other[0].weight, model[0].weight)


def masked(prediction: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return prediction[target > 0].square().mean()


def test_a_step_with_sizes_that_depend_on_data_says_so_and_trains_op_by_op() -> None:
    model = MLP()
    twin = copy.deepcopy(model)
    step, eager = TrainStep(model, sgd(model), masked), step_by_hand(twin, sgd(twin), masked)

    with pytest.raises(CaptureError, match="(?s)data-dependent-size: aten.index.Tensor.*torch.where"):
        TrainStep(model, sgd(model), masked, capture="require")(*rows())
    batches = [rows() for _ in range(3)]
    with pytest.warns(FallbackWarning, match="the step runs op by op: data-dependent-size") as warned:
        losses = [step(*batch) for batch in batches]

    assert len(warned) == 1
    torch.testing.assert_close(losses, [eager(*batch) for batch in batches])
    torch.testing.assert_close(model.state_dict(), twin.state_dict(), rtol=1e-5, atol=1e-6)
    assert "; off\n  because: data-dependent-size" in step.explain()


def test_sparse_gradients_give_what_eager_gives() -> None:
    model = nn.Embedding(9, 3, sparse=True)
    twin = copy.deepcopy(model)
    step = TrainStep(model, torch.optim.SGD(model.parameters(), 0.1), F.mse_loss)
    eager = step_by_hand(twin, torch.optim.SGD(twin.parameters(), 0.1))

    for _ in range(3):
        tokens, y = torch.randint(0, 9, (5,)), torch.randn(5, 3)
        torch.testing.assert_close(step(tokens, y), eager(tokens, y))

    torch.testing.assert_close(model.state_dict(), twin.state_dict(), rtol=1e-5, atol=1e-6)
