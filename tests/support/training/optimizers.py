"""Every optimizer of torch.optim that a step can be made of, each with numbers that make its parts matter."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn, optim
from torch.optim.lr_scheduler import LRScheduler, OneCycleLR

from tests.support.training.cases import Case

# Learning rates of successive steps, in relation to the first.
FACTORS = (1.0, 0.5, 2.0, 0.7, 1.3, 0.9, 1.1, 0.4, 1.6, 0.8)


@dataclass(frozen=True, slots=True, eq=False)
class Recipe:
    """An optimizer and its numbers.

    Attributes:
        name: In test ids and on the page.
        kind: The class.
        lr: Learning rate of the first step.
        options: Its other arguments.
        steps: How many steps make all its parts act.
        one_cycle: Whether `OneCycleLR` sets the learning rate and the momentum, or betas.
        matrices: Whether it takes only parameters of two dimensions; the others are not trained.
    """

    name: str
    kind: type[optim.Optimizer]
    lr: float
    options: Mapping[str, Any] = field(default_factory=dict)
    steps: int = 5
    one_cycle: bool = False
    matrices: bool = False

    def make(self, case: Case, model: nn.Module, *, foreach: bool | None = None) -> optim.Optimizer:
        """Return the optimizer of a model, in PyTorch's form for lists or the one for single tensors."""
        groups = case.groups(model)
        for group in groups:
            group["lr"] = self.lr * group.pop("lr_scale", 1.0)
            if self.matrices:
                group["params"] = [item for item in group["params"] if item.ndim == 2]
        knows_foreach = "foreach" in inspect.signature(self.kind).parameters
        form = {"foreach": foreach} if knows_foreach else {}
        return self.kind([group for group in groups if group["params"]], **self.options, **form)

    def schedule(self, optimizer: optim.Optimizer) -> Callable[[int], None]:
        """Return what sets the hyperparameters before the step of an index."""
        if self.one_cycle:
            scheduler: LRScheduler = OneCycleLR(optimizer, self.lr, total_steps=self.steps + 1)
            return lambda index: None if index == 0 else scheduler.step()
        first = [group["lr"] for group in optimizer.param_groups]

        def scale(index: int) -> None:
            for group, lr in zip(optimizer.param_groups, first, strict=True):
                group["lr"] = lr * FACTORS[index]

        return scale


# eps is far larger than the default: where it is added shows in the result.
ADAM = {"betas": (0.8, 0.95), "eps": 1e-4}

RECIPES = (
    Recipe("SGD", optim.SGD, 0.1),
    Recipe("SGD, weight decay", optim.SGD, 0.1, {"weight_decay": 0.1}),
    Recipe("SGD, momentum", optim.SGD, 0.05, {"momentum": 0.9}),
    Recipe("SGD, nesterov", optim.SGD, 0.05, {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    Recipe("SGD, dampening", optim.SGD, 0.05, {"momentum": 0.9, "dampening": 0.3, "weight_decay": 0.1}),
    Recipe("SGD, maximize", optim.SGD, 0.01, {"momentum": 0.9, "maximize": True}),
    Recipe("SGD, one cycle", optim.SGD, 0.1, {"momentum": 0.9}, one_cycle=True),
    Recipe("Adam", optim.Adam, 0.01, ADAM),
    Recipe("Adam, weight decay", optim.Adam, 0.01, {**ADAM, "weight_decay": 0.1}),
    Recipe("Adam, one cycle", optim.Adam, 0.02, ADAM, one_cycle=True),
    Recipe("Adam, amsgrad", optim.Adam, 0.01, {**ADAM, "amsgrad": True}),
    Recipe("AdamW", optim.AdamW, 0.01, {**ADAM, "weight_decay": 0.1}),
    Recipe("AdamW, amsgrad, maximize", optim.AdamW, 0.01, {**ADAM, "amsgrad": True, "maximize": True}),
    Recipe("NAdam", optim.NAdam, 0.01, {**ADAM, "momentum_decay": 0.1, "weight_decay": 0.1}),
    Recipe(
        "NAdam, decoupled", optim.NAdam, 0.01, {**ADAM, "decoupled_weight_decay": True, "weight_decay": 0.1}
    ),
    # The variance is trusted from the sixth step on: with betas[1] = 0.95 from the sixth, too.
    Recipe("RAdam", optim.RAdam, 0.01, {**ADAM, "weight_decay": 0.1}, steps=9),
    Recipe("Adamax", optim.Adamax, 0.01, {**ADAM, "weight_decay": 0.1}),
    Recipe("Adagrad", optim.Adagrad, 0.05, {"lr_decay": 0.1, "weight_decay": 0.1, "eps": 1e-4}),
    Recipe("Adagrad, accumulator", optim.Adagrad, 0.05, {"initial_accumulator_value": 0.2, "eps": 1e-4}),
    Recipe("Adadelta", optim.Adadelta, 1.0, {"rho": 0.8, "eps": 1e-4, "weight_decay": 0.1}),
    Recipe("RMSprop", optim.RMSprop, 0.01, {"alpha": 0.9, "eps": 1e-3, "weight_decay": 0.1}),
    Recipe(
        "RMSprop, centered",
        optim.RMSprop,
        0.005,
        {"alpha": 0.9, "eps": 1e-2, "centered": True, "momentum": 0.8},
    ),
    Recipe("Rprop", optim.Rprop, 0.01, {"etas": (0.4, 1.3), "step_sizes": (0.001, 0.02)}),
    # Averaging begins behind t0 steps.
    Recipe("ASGD", optim.ASGD, 0.1, {"lambd": 0.1, "t0": 2.0, "weight_decay": 0.1}),
    Recipe("Muon", optim.Muon, 0.02, {"momentum": 0.9}, matrices=True),
)


def recipe_named(name: str) -> Recipe:
    return next(recipe for recipe in RECIPES if recipe.name == name)


def entries(optimizer: optim.Optimizer, names: Mapping[nn.Parameter, str]) -> dict[str, torch.Tensor]:
    """Return the entries of an optimizer's state that are not None, as ``<parameter>.<entry>``."""
    return {
        f"{names[parameter]}.{key}": torch.as_tensor(item)
        for parameter, state in optimizer.state.items()
        for key, item in state.items()
        if item is not None
    }
