"""The network's training, with TrainStep and in eager PyTorch: from the same weights, on the same batches."""

from __future__ import annotations

import copy
from collections.abc import Callable

import digits
import torch
from claims import Claim
from executing import medians
from results import TrainingRuns, shown_seconds
from terminal import Terminal
from torch import Tensor, nn
from torch.nn import functional as F

from npu_runtime import TrainStep

# Of a share of right answers, and of the first epoch's loss: sums are rounded in another order, and training
# carries it on.
TOLERATED_ACCURACY = 0.01
TOLERATED_LOSS = 0.01


def smoothed_loss(logits: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(logits, labels, label_smoothing=0.05)


def eager_step(model: nn.Module, optimizer: torch.optim.Optimizer) -> digits.Step:
    """Return the usual loop body."""

    def step(images: Tensor, labels: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = smoothed_loss(model(images), labels)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def graph_step(model: nn.Module, optimizer: torch.optim.Optimizer) -> digits.Step:
    """Return the same step as one graph, replayed."""
    return TrainStep(model, optimizer, smoothed_loss)


def train_both(
    terminal: Terminal, images: digits.Digits, epochs: int
) -> tuple[digits.DigitNet, TrainingRuns]:
    """Return the network that TrainStep has trained, the same on every run, and how training went."""
    torch.manual_seed(0)
    untrained = digits.DigitNet()
    _, eager = trained(terminal, "in eager PyTorch", untrained, images, epochs, eager_step)
    model, graph = trained(terminal, "with TrainStep", untrained, images, epochs, graph_step)
    with terminal.work("make steps of both in turns"):
        seconds = step_seconds(untrained, images)
    return model, TrainingRuns(eager, graph, *seconds)


def trained(
    terminal: Terminal,
    how: str,
    untrained: digits.DigitNet,
    images: digits.Digits,
    epochs: int,
    make_step: digits.MakeStep,
) -> tuple[digits.DigitNet, digits.Training]:
    """Return a trained copy; the batches are the same every time."""
    model = copy.deepcopy(untrained)
    torch.manual_seed(1)
    text = f"train {epochs} epochs on {len(images.train_images)} images, {how}"
    with terminal.work(text, epochs) as advance:

        def shown(epoch: digits.Epoch) -> None:
            advance(f"test accuracy {epoch.test_accuracy:.1%}")

        return model, digits.train(model, images, epochs, make_step, shown)


def step_seconds(untrained: digits.DigitNet, images: digits.Digits) -> tuple[float, float]:
    """Return the time of a step in eager PyTorch and with TrainStep; they take turns."""
    batch = images.train_images[: digits.BATCH], images.train_labels[: digits.BATCH]
    with digits.single_thread():
        calls = [bound(make, copy.deepcopy(untrained), batch) for make in (eager_step, graph_step)]
        for call in calls:
            call()
        eager, graph = medians(*calls)
    return eager, graph


def bound(
    make_step: digits.MakeStep, model: digits.DigitNet, batch: tuple[Tensor, Tensor]
) -> Callable[[], Tensor]:
    step = make_step(model.train(), digits.make_optimizer(model))
    return lambda: step(*batch)


def speed_claim(name: str, runs: TrainingRuns) -> Claim:
    """Return the claims of the demo on the time of a step."""
    times = f"{shown_seconds(runs.step_seconds)} and {shown_seconds(runs.eager_step_seconds)}"
    return Claim(
        name,
        "A step of TrainStep takes less time than one in eager PyTorch",
        f"{times}: {runs.step_seconds / runs.eager_step_seconds:.2f}x",
        runs.step_seconds < runs.eager_step_seconds,
    )


def training_claims(name: str, runs: TrainingRuns) -> list[Claim]:
    """Return the claims of the demo on the trained model; none without an epoch."""
    if not runs.graph.epochs:
        return []
    accuracies = [run.epochs[-1].test_accuracy for run in (runs.graph, runs.eager)]
    losses = [run.epochs[0].loss for run in (runs.graph, runs.eager)]
    return [
        Claim(
            name,
            (
                "Training with TrainStep is as good as in eager PyTorch: at most one test image in "
                "a hundred more is misread"
            ),
            f"{accuracies[0]:.2%} and {accuracies[1]:.2%} are read right",
            accuracies[0] >= accuracies[1] - TOLERATED_ACCURACY,
        ),
        Claim(
            name,
            "Both have the same training loss in the first epoch, within a hundredth",
            f"{losses[0]:.6f} and {losses[1]:.6f}",
            abs(losses[0] - losses[1]) <= TOLERATED_LOSS * losses[1],
        ),
    ]


def training_rows(runs: TrainingRuns) -> list[tuple[str, str]]:
    """Return how training went, for the summary of a chapter."""
    ratio = runs.step_seconds / runs.eager_step_seconds
    steps = f"{shown_seconds(runs.step_seconds)} and {shown_seconds(runs.eager_step_seconds)}"
    return [
        ("training with TrainStep", training_text(runs.graph)),
        ("training in eager PyTorch", training_text(runs.eager)),
        ("TrainStep beside eager, one step", f"{steps}: {ratio:.2f}x"),
        ("TrainStep takes less time in all", pays_text(runs)),
    ]


def pays_text(runs: TrainingRuns) -> str:
    """Return from how many steps on TrainStep takes less time in all, the first one included."""
    if runs.break_even is None:
        return "never here: its steps take no less"
    return f"from {runs.break_even:,} steps on; here are {runs.graph.steps:,}"


def comparison_text(runs: TrainingRuns) -> str:
    """Return in a sentence which of both trainings took less time, and why."""
    first = f"Its first step, which makes the graph, took {shown_seconds(runs.graph.first_seconds)}"
    each = (
        f"each further one {shown_seconds(runs.step_seconds)}, in eager PyTorch "
        f"{shown_seconds(runs.eager_step_seconds)}"
    )
    if runs.break_even is None:
        return f"{first}; {each}: here, eager PyTorch takes less time however many steps there are."
    behind = "not reached in" if runs.graph.steps < runs.break_even else "less than"
    return (
        f"{first}; {each}: TrainStep takes less time in all from {runs.break_even:,} steps on, which is "
        f"{behind} the {runs.graph.steps:,} steps of this training."
    )


def training_text(training: digits.Training) -> str:
    return f"{shown_seconds(training.seconds)}, the first step {shown_seconds(training.first_seconds)} of it"
