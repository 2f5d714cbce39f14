"""A contender of `train.py`: first step timed, five steps compared with eager, memory measured."""

from __future__ import annotations

import copy
import gc
import time
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from train_contenders import CONTENDERS, OURS, Contender, eager
from train_models import MODELS, OPTIMIZERS, Loss
from turns import BURST_SECONDS, Ready, burst, peak_bytes

STEPS = 5


@dataclass(frozen=True, slots=True)
class Case:
    """A step to be measured.

    Attributes:
        model: As it is before any step.
        optimizer: Its name in `OPTIMIZERS`.
        loss_fn: Of what the model returns and the target.
        batch: Inputs and target, the same at every step.
    """

    model: nn.Module
    optimizer: str
    loss_fn: Loss
    batch: tuple[Tensor, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The results of some steps: the losses, and the state of the model."""

    losses: list[Tensor]
    state: dict[str, Tensor]


def make_case(name: str, optimizer: str) -> Case:
    torch.manual_seed(0)
    model, loss_fn, batch = MODELS[name].make()
    return Case(model, optimizer, loss_fn, batch)


def expected_of(case: Case) -> Outcome:
    """Return the results of eager training."""
    model = copy.deepcopy(case.model)
    step = eager(model, OPTIMIZERS[case.optimizer][1](model.parameters()), case.loss_fn)
    return Outcome([step(*case.batch) for _ in range(STEPS)], model.state_dict())


def ready(name: str, case: Case, expected: Outcome) -> Ready:
    """Return a contender after some steps, and its measurements."""
    contender = CONTENDERS[name]
    warm_up(contender, case)
    model = copy.deepcopy(case.model)
    optimizer = OPTIMIZERS[case.optimizer][1](model.parameters(), **contender.options)
    gc.collect()
    start = time.perf_counter()
    step: Any = contender.build(model, optimizer, case.loss_fn)
    losses = [step(*case.batch).clone()]
    first = time.perf_counter() - start
    losses += [step(*case.batch).clone() for _ in range(STEPS - 1)]
    facts: dict[str, Any] = {"difference": difference(Outcome(losses, model.state_dict()), expected, case)}
    facts["first_seconds"] = first
    again = burst(step, case.batch)
    facts["compile_seconds"] = max(0.0, first - again) if contender.is_compiled else None
    optimizer.zero_grad()
    facts["peak_bytes"] = peak_bytes(step, case.batch)
    facts |= memory_of(step) if name in OURS else {}
    if not contender.is_run:
        return Ready(step, case.batch, facts)
    count = max(2, int(BURST_SECONDS / again))
    return Ready(step.run, ([case.batch] * count,), facts, steps=count)


def warm_up(contender: Contender, case: Case) -> None:
    """Run a small step, so that work done once per process, or once per machine, is not counted."""
    model = nn.Linear(2, 2)
    optimizer = OPTIMIZERS[case.optimizer][1](model.parameters(), **contender.options)
    contender.build(model, optimizer, F.mse_loss)(torch.ones(2, 2), torch.ones(2, 2))
    torch._dynamo.reset()  # else it would take the sizes of the next step for dynamic ones


def memory_of(step: Any) -> dict[str, Any]:
    """Return how much memory was planned for a step of ours."""
    plan = step.artifact.plan
    return {"arena_bytes": plan.arena_bytes, "lower_bound_bytes": plan.lower_bound_bytes}


def difference(found: Outcome, expected: Outcome, case: Case) -> float:
    """Return the largest difference of a loss, or of the change of a tensor of the state.

    Losses are compared with themselves, changes by the norm of the tensor's change: the steps are small
    beside what they start from.
    """
    losses = [_relative(mine, theirs) for mine, theirs in zip(found.losses, expected.losses, strict=True)]
    before = case.model.state_dict()
    changes = [
        _relative(found.state[name].double() - old, expected.state[name].double() - old)
        for name, old in before.items()
    ]
    return max(*losses, *changes)


def _relative(found: Tensor, expected: Tensor) -> float:
    found, expected = found.double(), expected.double()
    return 0.0 if torch.equal(found, expected) else float((found - expected).norm() / expected.norm())
