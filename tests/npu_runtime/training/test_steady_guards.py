"""The generated call of a step is left as soon as anything has changed that the step was bound to."""

from __future__ import annotations

import contextlib
import copy
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn, optim
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from npu_runtime.training.capture.capture_state import activity
from npu_runtime.training.steady_call import CHANGED
from tests.npu_runtime.training.steady import Steady


class Relu(nn.LeakyReLU):
    def forward(self, x: Tensor) -> Tensor:
        return x.relu()


class Halving(optim.SGD):
    pass


class FunctionMode(TorchFunctionMode):
    pass


class DispatchMode(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def momentum() -> Steady:
    return Steady(momentum=0.9)


def move(tensor: Tensor) -> None:
    tensor.data = tensor.data.clone()


def replace_state(steady: Steady) -> None:
    state = steady.optimizer.state[steady.model.first.weight]
    state["momentum_buffer"] = state["momentum_buffer"].clone()


def move_state(steady: Steady) -> None:
    move(steady.optimizer.state[steady.model.first.weight]["momentum_buffer"])


def replace_step(steady: Steady) -> None:
    steady.optimizer.step = lambda closure=None: None  # type: ignore[method-assign, assignment]


def restore(steady: Steady) -> None:
    steady.model.norm.__setstate__(copy.deepcopy(vars(steady.model.norm)))


def replace_hooks(steady: Steady) -> None:
    steady.model.act._forward_hooks = OrderedDict()
    steady.model.act.register_forward_hook(lambda *_: None)


def rebind(steady: Steady) -> None:
    steady.step.artifact.rebind_components()


# What is changed, by name: after each of these, the step is another one, or has to be bound again.
CHANGES: dict[str, Callable[[Steady], Any]] = {
    "another parameter": lambda it: setattr(it.model.first, "weight", nn.Parameter(torch.randn(4, 4))),
    "a parameter of another module": lambda it: setattr(it.model.second, "weight", it.model.first.weight),
    "a parameter that is gone": lambda it: setattr(it.model.first, "bias", None),
    "the memory of a parameter": lambda it: move(it.model.second.bias),
    "the memory of a buffer": lambda it: move(it.model.norm.running_mean),
    "another buffer": lambda it: setattr(it.model.norm, "running_var", torch.ones(4)),
    "the strides of a parameter": lambda it: setattr(
        it.model.first.weight, "data", it.model.first.weight.data.t()
    ),
    "the dtype of the model": lambda it: it.model.double(),
    "a frozen parameter": lambda it: it.model.first.bias.requires_grad_(False),
    "evaluation": lambda it: it.model.eval(),
    "evaluation of one module": lambda it: it.model.act.eval(),
    "a number of a module": lambda it: setattr(it.model, "scale", 3.0),
    "an integer in place of a float": lambda it: setattr(it.model, "scale", 2),
    "another tensor": lambda it: setattr(it.model, "shift", torch.ones(4)),
    "the content of a tensor": lambda it: it.model.shift.fill_(1),
    "the memory of a tensor": lambda it: move(it.model.shift),
    "a new attribute": lambda it: setattr(it.model.act, "more", 1),
    "a deleted attribute": lambda it: delattr(it.model, "scale"),
    "another module": lambda it: setattr(it.model, "act", nn.Tanh()),
    "a new module": lambda it: it.model.add_module("third", nn.Identity()),
    "a new parameter": lambda it: it.model.act.register_parameter("p", nn.Parameter(torch.ones(1))),
    "a new buffer": lambda it: it.model.act.register_buffer("b", torch.ones(1)),
    "the class of a module": lambda it: setattr(it.model.act, "__class__", Relu),
    "a hook of a module": lambda it: it.model.act.register_forward_hook(lambda *_: None),
    "a hook of a parameter": lambda it: it.model.first.weight.register_hook(lambda gradient: gradient),
    "a hook of the optimizer": lambda it: it.optimizer.register_step_pre_hook(lambda *_: None),
    "a rate that is not finite": lambda it: it.group.update(lr=float("inf")),
    "a rate that is an integer": lambda it: it.group.update(lr=1),
    "a number that becomes open": lambda it: it.group.update(weight_decay=0.1),
    "a switch": lambda it: it.group.update(maximize=True),
    "a parameter less in a group": lambda it: it.group["params"].pop(),
    "another order in a group": lambda it: it.group["params"].reverse(),
    "another group": lambda it: it.optimizer.add_param_group({"params": [nn.Parameter(torch.ones(1))]}),
    "loaded state": lambda it: it.optimizer.load_state_dict(it.optimizer.state_dict()),
    "state that is gone": lambda it: it.optimizer.state.clear(),
    "other state": replace_state,
    "the memory of state": move_state,
    "the class of the optimizer": lambda it: setattr(it.optimizer, "__class__", Halving),
    "a step that is set on the optimizer": replace_step,
    "a module as it was pickled": restore,
    "a hook in another dict": replace_hooks,
    "another binding": rebind,
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_of_what_a_step_is_bound_to_is_noticed(change: Callable[[Steady], Any]) -> None:
    steady = momentum()
    assert steady.call(steady.batch, {}) is not CHANGED

    change(steady)

    kept = [item.clone() for item in steady.model.parameters()]
    assert steady.call(steady.batch, {}) is CHANGED
    assert all(map(torch.equal, steady.model.parameters(), kept)), "no step was taken"


CONTEXTS: dict[str, Callable[[], Any]] = {
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "a mode of functions": FunctionMode,
    "a mode of ops": DispatchMode,
    "inference mode": torch.inference_mode,
    "a replay": lambda: activity("replay"),
}


@pytest.mark.parametrize("context", CONTEXTS.values(), ids=CONTEXTS)
def test_a_context_that_changes_ops_is_noticed(context: Callable[[], Any]) -> None:
    steady = Steady()

    with context():
        inside = steady.call(steady.batch, {})

    assert inside is CHANGED
    assert steady.call(steady.batch, {}) is not CHANGED


def test_another_default_dtype_is_noticed() -> None:
    steady = Steady()

    with contextlib.ExitStack() as stack:
        stack.callback(torch.set_default_dtype, torch.get_default_dtype())
        torch.set_default_dtype(torch.float64)
        inside = steady.call(steady.batch, {})

    assert inside is CHANGED


BATCHES: dict[str, tuple[Any, Any]] = {
    "another size": ((torch.randn(5, 4), torch.randn(5, 4)), {}),
    "another dtype": ((torch.randn(6, 4).double(), torch.randn(6, 4)), {}),
    "other strides": ((torch.randn(4, 6).t(), torch.randn(6, 4)), {}),
    "a tensor less": ((torch.randn(6, 4),), {}),
    "a number": ((torch.randn(6, 4), 1.0), {}),
    "a keyword": ((torch.randn(6, 4), torch.randn(6, 4)), {"more": 1}),
}


@pytest.mark.parametrize("batch", BATCHES.values(), ids=BATCHES)
def test_another_kind_of_batch_is_noticed(batch: tuple[Any, Any]) -> None:
    assert Steady().call(*batch) is CHANGED
