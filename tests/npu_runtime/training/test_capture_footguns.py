"""Surprises of capture and replay: something is not as it was when the step was captured."""

import copy
import importlib
import itertools
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn, optim
from torch.utils._pytree import tree_map

from npu_runtime import TrainStep, compile_and_capture
from npu_runtime.errors import CaptureError, TracingError
from npu_runtime.training import compile_ir
from tests.support.tiers import thin
from tests.support.training.eager import step_by_hand
from tests.support.training.full_state import require_same
from tests.support.training.models import MLP, Transformer
from tests.support.training.side_by_side import (
    MakeOptimizer,
    Told,
    adam,
    as_eager,
    assert_as_eager,
    rows,
    run_in_threads,
    sgd,
)


@pytest.mark.parametrize("borrow", [False, True])
def test_a_result_stays_what_it_was_unless_it_is_borrowed(borrow: bool) -> None:
    model = MLP()
    step = TrainStep(model, sgd(model), F.mse_loss, borrow=borrow)
    batch = rows()
    before = copy.deepcopy(batch)
    step(*batch)

    first = step(*batch)
    kept = first.clone()
    second = step(*batch)

    assert (first.data_ptr() == second.data_ptr()) is borrow
    assert torch.equal(first, second if borrow else kept)
    assert not torch.equal(second, kept)
    assert all(map(torch.equal, batch, before))


@as_eager(lambda: nn.Sequential(nn.Linear(7, 4), nn.Linear(4, 7)))
def test_one_tensor_as_input_and_target_is_not_one_later(told: Told) -> Any:
    x, y = torch.randn(5, 7), torch.randn(5, 7)
    return [told.step(x, x), told.step(x, y), told.step(y, y)]


@as_eager(lambda: nn.Sequential(nn.Dropout(0.5), nn.Linear(7, 3)))
def test_a_batch_that_lies_otherwise_in_memory_gives_the_same(told: Told) -> Any:
    x, y = rows()
    return [told.step(x, y), told.step(x.t().contiguous().t(), y), told.step(x.repeat(1, 2)[:, ::2], y)]


def test_a_result_of_one_step_may_be_the_batch_of_the_next() -> None:
    def loss(prediction: torch.Tensor, target: torch.Tensor) -> Any:
        return F.mse_loss(prediction, target), prediction.detach()

    def story(told: Told) -> Any:
        x, y = rows()
        _, prediction = told.step(x, y)
        return [told.step(x, prediction) for _ in range(2)]

    assert_as_eager(story, MLP(), loss=loss)


@as_eager(MLP)
def test_another_shape_is_traced_anew_and_both_stay_usable(told: Told) -> Any:
    return [told.step(*rows(count)) for count in (5, 8, 5, 1, 8)]


def test_the_scheduler_changes_rates_without_a_warning() -> None:
    def story(told: Told) -> Any:
        scheduler = optim.lr_scheduler.StepLR(told.optimizer, 1, gamma=0.3)
        losses = []
        for _ in range(4):
            losses.append(told.step(*rows()))
            scheduler.step()
        return [*losses, scheduler.get_last_lr()]

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_as_eager(story, MLP())


@as_eager(MLP)
def test_autocast_around_a_call_acts_on_it(told: Told) -> Any:
    losses = [told.step(*rows())]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        losses.append(told.step(*rows()))
    return [*losses, told.step(*rows())]


@as_eager(Transformer, loss=F.cross_entropy)
def test_random_numbers_go_on_where_eager_leaves_them(told: Told) -> Any:
    tokens, kinds = torch.randint(0, 20, (4, 6)), torch.randint(0, 5, (4,))
    return [item for _ in range(3) for item in (told.step(tokens, kinds), torch.rand(2))]


@pytest.mark.parametrize("loss", [F.mse_loss, F.smooth_l1_loss, F.huber_loss, F.l1_loss])
def test_a_batch_without_rows_has_the_loss_of_eager(loss: Callable[..., Any]) -> None:
    assert_as_eager(lambda told: [told.step(*rows(count)) for count in (0, 2)], MLP(), sgd, loss)


class UnusedDraws(MLP):
    """Draws random numbers that nothing reads."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = super().forward(x)
        nn.functional.dropout(hidden, 0.3)
        torch.bernoulli(torch.full_like(x, 0.5))
        torch.randperm(4)
        return hidden + torch.rand_like(hidden)


@as_eager(UnusedDraws)
def test_random_numbers_that_nothing_reads_are_drawn_all_the_same(told: Told) -> Any:
    return [item for _ in range(3) for item in (told.step(*rows()), torch.rand(2))]


class Net(MLP):
    """With a norm, whose buffers are written, and dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.dropout = nn.BatchNorm1d(7), nn.Dropout(0.4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.dropout(super().forward(self.norm(x)))  # type: ignore[no-any-return]


def plain(model: nn.Module) -> optim.Optimizer:
    return optim.SGD(model.parameters(), 0.1)


def of_one_layer(model: Any) -> optim.Optimizer:
    return optim.SGD(model.fc1.parameters(), 0.1, momentum=0.9)


def decaying(model: nn.Module) -> optim.Optimizer:
    return optim.AdamW(model.parameters(), 0.1, eps=1e-3, weight_decay=0.5)


def with_a_tensor_as_rate(model: nn.Module) -> optim.Optimizer:
    return optim.Adam(model.parameters(), torch.tensor(0.01))


def set_to(**settings: Any) -> Callable[[Told], Any]:
    return lambda told: told.optimizer.param_groups[0].update(settings)


def reload_and_set_to(**settings: Any) -> Callable[[Told], Any]:
    def change(told: Told) -> None:
        told.optimizer.load_state_dict(told.optimizer.state_dict())
        told.optimizer.param_groups[0].update(settings)

    return change


def load_twice_the_state(told: Told) -> None:
    kept = told.optimizer.state_dict()
    kept["state"] = tree_map(lambda item: item.clone() * 2, kept["state"])
    told.optimizer.load_state_dict(kept)


def move_weights(told: Told) -> None:
    for parameter in told.model.parameters():
        parameter.data = parameter.data * 2


def add_a_group(told: Told) -> None:
    told.optimizer.add_param_group({"params": list(told.model.fc3.parameters()), "lr": 0.3})  # type: ignore[union-attr]


CHANGES: list[tuple[str, MakeOptimizer, Callable[[Told], Any]]] = [
    ("weight decay begins", plain, set_to(weight_decay=0.5)),
    ("weight decay ends", decaying, set_to(weight_decay=0.0)),
    ("momentum begins", plain, set_to(momentum=0.5)),
    ("nesterov", sgd, set_to(nesterov=True)),
    ("SGD maximizes", sgd, set_to(maximize=True)),
    ("Adam maximizes", adam, set_to(maximize=True)),
    ("betas", adam, set_to(betas=(0.5, 0.7))),
    ("a tensor as rate", with_a_tensor_as_rate, lambda told: told.optimizer.param_groups[0]["lr"].mul_(0.1)),
    ("the rate of reloaded settings", plain, reload_and_set_to(lr=0.001)),
    ("the decay of reloaded settings", plain, reload_and_set_to(weight_decay=0.5)),
    ("reloaded settings maximize", plain, reload_and_set_to(maximize=True)),
    ("loaded state", adam, load_twice_the_state),
    ("another group", of_one_layer, add_a_group),
    ("gradients", adam, lambda told: told.model(torch.randn(5, 7)).sum().backward()),
    ("evaluation", adam, lambda told: told.model.eval()),
    ("dropout", adam, lambda told: setattr(told.model.dropout, "p", 0.6)),
    ("a buffer", adam, lambda told: setattr(told.model.norm, "running_var", torch.ones(7))),
    ("weights in other memory", adam, move_weights),
    ("another dtype", plain, lambda told: told.model.double()),
]


@pytest.mark.parametrize(("make", "change"), [pytest.param(*row[1:], id=row[0]) for row in CHANGES])
def test_a_change_between_steps_counts_as_in_eager(
    make: MakeOptimizer, change: Callable[[Told], Any]
) -> None:
    def story(told: Told) -> Any:
        losses = [told.step(*rows()), told.step(*rows())]
        change(told)
        dtype = next(told.model.parameters()).dtype
        return [*losses, *(told.step(*(item.to(dtype) for item in rows())) for _ in range(2))]

    assert_as_eager(story, Net(), make)


@pytest.mark.parametrize("before", [[8], [8, 6]], ids=["one shape", "two shapes"])
def test_batches_of_all_shapes_go_on_with_the_state_that_begins_anew(before: list[int]) -> None:
    def story(told: Told) -> Any:
        losses = [told.step(*rows(count)) for count in before]
        told.optimizer.state.clear()
        return [*losses, *(told.step(*rows(count)) for count in (6, 8, 6, 8))]

    assert_as_eager(story, MLP())


@as_eager(MLP)
def test_steps_by_hand_may_stand_between_ours(told: Told) -> Any:
    by_hand = step_by_hand(told.model, told.optimizer)
    return [told.step(*rows()), by_hand(*rows()), told.step(*rows()), told.step(*rows())]


@as_eager(MLP)
def test_a_parameter_that_is_frozen_later_stays_as_it_is(told: Told) -> Any:
    losses = [told.step(*rows())]
    told.optimizer.zero_grad()
    told.model.fc2.weight.requires_grad_(False)
    losses.append(told.step(*rows()))
    told.model.fc2.weight.requires_grad_(True)
    return [*losses, told.step(*rows())]


@pytest.mark.parametrize("how", ["parameter", "assign"])
def test_an_optimizer_of_parameters_that_the_model_no_longer_has_is_refused(how: str) -> None:
    """Eager would go on training what nobody uses."""
    model = MLP()
    step = TrainStep(model, sgd(model), F.mse_loss)
    step(*rows())

    if how == "parameter":
        model.fc1.weight = nn.Parameter(torch.zeros(12, 7))
    else:
        model.load_state_dict(MLP().state_dict(), assign=True)

    with pytest.raises(TracingError, match="(?s)that is not a parameter of the model.*make the optimizer of"):
        step(*rows())


class Failing(nn.Module):
    """Draws random numbers, writes a buffer, and fails for a token that is too large."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.drop = nn.BatchNorm1d(7), nn.Dropout(0.4)
        self.embed, self.head = nn.Embedding(9, 7), nn.Linear(7, 3)

    def forward(self, x: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.drop(self.norm(x)) + self.embed(tokens))


@pytest.mark.parametrize("warm", [0, 2])
def test_a_step_that_fails_changes_nothing(warm: int) -> None:
    model = Failing()
    optimizer = adam(model)
    told = Told(model, optimizer, F.mse_loss, False)
    x, y = rows()
    for _ in range(warm):
        told.step(x, torch.arange(5), y)
    before, random_state = told.state(), torch.get_rng_state()

    with pytest.raises(Exception, match="index out of range"):
        told.step(x, torch.full((5,), 9), y)

    require_same(told.state(), before)
    assert torch.equal(torch.get_rng_state(), random_state)
    assert torch.isfinite(told.step(x, torch.arange(5), y))


def test_arguments_that_do_not_fit_change_nothing() -> None:
    model = MLP()
    told = Told(model, adam(model), F.mse_loss, False)
    told.step(*rows())
    before, graph = told.state(), told.step.graph

    with pytest.raises(TracingError, match="the step cannot be traced: RuntimeError: .*"):
        told.step(torch.randn(5, 8), torch.randn(5, 3))
    with pytest.raises(TracingError, match="target"):
        told.step()

    require_same(told.state(), before)
    assert told.step.graph is graph


# Several steps, several threads, steps in steps


def two_optimizers(model: MLP) -> list[optim.Optimizer]:
    return [optim.SGD(model.fc3.parameters(), 0.1, momentum=0.9), optim.Adam(model.fc1.parameters(), 0.01)]


@pytest.mark.parametrize(
    "make", [two_optimizers, lambda model: [adam(model)] * 2], ids=["model", "model and optimizer"]
)
def test_two_steps_may_share_a_model(make: Callable[[MLP], list[optim.Optimizer]]) -> None:
    first = MLP()
    second = copy.deepcopy(first)

    def train(model: MLP, step_of: Any) -> list[torch.Tensor]:
        losses = F.mse_loss, F.l1_loss
        steps = [step_of(model, *parts) for parts in zip(make(model), losses, strict=True)]
        torch.manual_seed(1)
        return [step(*rows()) for _ in range(3) for step in steps]

    torch.testing.assert_close(train(first, TrainStep), train(second, step_by_hand), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(first.state_dict(), second.state_dict(), rtol=1e-5, atol=1e-6)


def test_a_step_that_calls_itself_is_refused() -> None:
    model = MLP()

    def loss(prediction: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        step(*rows())
        return F.mse_loss(prediction, target)

    step = TrainStep(model, sgd(model), loss)

    with pytest.raises(CaptureError, match="(?s)a step calls itself.*outside of the loss"):
        step(*rows())


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_step_is_not_copied(copied: Any) -> None:
    model = MLP()
    step = TrainStep(model, sgd(model), F.mse_loss)

    artifact = compile_and_capture(model, sgd(model), F.mse_loss, rows())

    with pytest.raises(CaptureError, match="(?s)a TrainStep cannot be copied.*copy model and optimizer"):
        copied(step)
    with pytest.raises(
        CaptureError, match="(?s)a CompileArtifact cannot be copied.*copy model and optimizer"
    ):
        copied(artifact)


class Remembering(optim.Optimizer):
    """An optimizer whose state is unknown before its first step, which is taken in eager PyTorch."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model.parameters(), {"lr": 0.05})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                state = self.state[parameter]
                if "last" not in state:
                    state["last"] = torch.zeros_like(parameter)
                state["last"].mul_(0.5).add_(parameter.grad)
                parameter.sub_(group["lr"] * state["last"])


CALLERS = list(
    itertools.product([torch.no_grad, torch.inference_mode], [sgd, adam, Remembering], ["aten", "host"])
)


@pytest.mark.parametrize("caller", thin(CALLERS, 5))
def test_a_step_trains_in_any_mode_of_its_caller_where_backward_of_eager_fails(caller: Any) -> None:
    """A step is a call that updates parameters, as `optimizer.step()` is; the model is trained as ever."""
    mode, make, backend = caller
    torch.manual_seed(0)
    model = MLP()
    other, batches = copy.deepcopy(model), [rows() for _ in range(4)]
    optimizers = [make(item) for item in (model, other)]
    within, outside = (
        TrainStep(item, optimizer, F.mse_loss, backend=backend)
        for item, optimizer in zip((model, other), optimizers, strict=True)
    )

    with mode():
        losses = [within(*batch) for batch in batches[:2]]
    losses += [within(*batch) for batch in batches[2:]]

    torch.testing.assert_close(losses, [outside(*batch) for batch in batches], rtol=0, atol=0)
    torch.testing.assert_close(model.state_dict(), other.state_dict(), rtol=0, atol=0)
    step_by_hand(model, optimizers[0], F.mse_loss)(*batches[0])  # its state are ordinary tensors


def test_a_step_is_traced_with_dynamo_loaded() -> None:
    """It puts a wrapper around the steps of all optimizers."""
    importlib.import_module("torch._dynamo")

    assert_as_eager(lambda told: [told.step(*rows()) for _ in range(2)], MLP())


def test_a_step_within_a_step_is_refused() -> None:
    model = MLP()
    optimizer = sgd(model)
    inner = TrainStep(model, optimizer, F.mse_loss)

    def outer(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return inner(x, y)

    for _ in range(2):  # the second time, the inner step is compiled
        with pytest.raises(TracingError, match="training step is called within a trace, of another step"):
            compile_ir(outer, example_batch=rows(), modules=[model], optimizers=[optimizer])
        inner(*rows())


def test_a_step_that_is_traced_within_a_step_is_refused() -> None:
    model = MLP()
    optimizer = sgd(model)

    def outer(x: torch.Tensor, y: torch.Tensor) -> object:
        return compile_ir(
            lambda x, y: F.mse_loss(model(x), y),
            example_batch=(x, y),
            modules=[model],
            optimizers=[optimizer],
        )

    with pytest.raises(TracingError, match="is called by a step that is being traced"):
        compile_ir(outer, example_batch=rows(), modules=[model], optimizers=[optimizer])


def test_steps_in_threads_do_not_disturb_each_other() -> None:
    def train(make: Any) -> list[Any]:
        torch.manual_seed(0)
        models, results = [MLP(), MLP()], [None, None]

        def run(index: int) -> None:
            generator = torch.Generator().manual_seed(index)
            step = make(models[index], sgd(models[index]), F.mse_loss)
            x, y = torch.randn(5, 7, generator=generator), torch.randn(5, 3, generator=generator)
            results[index] = [step(x, y) for _ in range(20)]

        run_in_threads(2, run)
        return results

    torch.testing.assert_close(train(TrainStep), train(step_by_hand), rtol=1e-5, atol=1e-6)


def test_threads_that_share_a_step_take_turns() -> None:
    torch.manual_seed(0)
    model = MLP()
    optimizer = adam(model)
    step, (x, y) = TrainStep(model, optimizer, F.mse_loss), rows()
    losses: list[torch.Tensor] = []

    run_in_threads(3, lambda _: losses.extend(step(x, y) for _ in range(20)))

    assert len({float(loss) for loss in losses}) == 60
    assert optimizer.state[model.fc1.weight]["step"] == 60


@pytest.mark.parametrize("shared", [nn.Linear(6, 6), nn.BatchNorm1d(6)], ids=["linear", "batch-norm"])
def test_a_module_with_two_names_is_trained_as_one(shared: nn.Module) -> None:
    def story(told: Told) -> list[torch.Tensor]:
        return [told.step(*rows(5, 6, 6)).detach() for _ in range(3)]

    assert_as_eager(story, nn.Sequential(shared, nn.Tanh(), shared))
