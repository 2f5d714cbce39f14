"""The generated call of a step is left as soon as anything has changed that the step was bound to."""

from __future__ import annotations

import contextlib
import copy
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn, optim
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from npu_runtime import TrainStep
from npu_runtime._torch.state import below_autograd
from npu_runtime.training.capture.capture_state import activity, in_capture
from npu_runtime.training.steady_call import CHANGED, make_steady_call


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.act, self.second = nn.Linear(4, 4), nn.LeakyReLU(0.1), nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)
        self.scale, self.shift = 2.0, torch.zeros(4)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.act(self.first(self.norm(x)))) * self.scale + self.shift


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


class Steady:
    """A step that has been taken twice, and its generated call."""

    def __init__(self, make: Callable[..., optim.Optimizer] = optim.SGD, **settings: Any) -> None:
        torch.manual_seed(0)
        self.model = Net()
        self.optimizer = make(self.model.parameters(), **{"lr": 0.1, **settings})
        self.step = TrainStep(self.model, self.optimizer, F.mse_loss)
        self.batch = torch.randn(6, 4), torch.randn(6, 4)
        self.step(*self.batch)
        self.step(*self.batch)
        self.call = make_steady_call(self.step.artifact, self.step._guards, borrow=False)

    @property
    def group(self) -> dict[str, Any]:
        return self.optimizer.param_groups[0]


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


def test_hooks_are_gone_once_another_dict_is_in_place_of_theirs() -> None:
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    model.register_forward_hook(lambda module, args, result: result * 3)
    step = TrainStep(model, optim.SGD(model.parameters(), lr=0.0), F.mse_loss)
    x, y = torch.randn(6, 4), torch.randn(6, 3)
    hooked = [step(x, y) for _ in range(3)]

    model._forward_hooks = OrderedDict()

    torch.testing.assert_close(hooked[2], F.mse_loss(model(x) * 3, y).detach())
    torch.testing.assert_close(step(x, y), F.mse_loss(model(x), y).detach())


@pytest.mark.parametrize("backend", ["aten", "host"])
def test_state_that_was_given_other_memory_is_read_and_updated_there(backend: str) -> None:
    found = []
    for eager in (False, True):
        torch.manual_seed(0)
        model = nn.Linear(4, 3)
        optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        step = TrainStep(model, optimizer, F.mse_loss, backend=backend)
        x, y = torch.randn(6, 4), torch.randn(6, 3)
        for number in range(5):
            if number == 3:
                for state in optimizer.state.values():
                    state["momentum_buffer"].data = torch.zeros_like(state["momentum_buffer"])
            if eager:
                optimizer.zero_grad()
                F.mse_loss(model(x), y).backward()  # type: ignore[no-untyped-call]
                optimizer.step()
            else:
                step(x, y)
        found.append([state["momentum_buffer"] for state in optimizer.state.values()])

    torch.testing.assert_close(*found)


def test_a_scheduler_that_is_made_between_steps_leaves_the_generated_call() -> None:
    steady = Steady()

    scheduler = optim.lr_scheduler.ExponentialLR(steady.optimizer, 0.5)  # replaces the optimizer's step
    steady.optimizer._opt_called = True  # type: ignore[attr-defined]
    scheduler.step()

    assert steady.call(steady.batch, {}) is not CHANGED


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


def train(settings: dict[str, Any], change: Callable[[Any, int], Any], *, eager: bool) -> list[Tensor]:
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    optimizer = optim.SGD(model.parameters(), **settings)
    step = TrainStep(model, optimizer, F.mse_loss)
    x, y = torch.randn(6, 4), torch.randn(6, 3)
    found = []
    for number in range(8):
        change(optimizer.param_groups[0], number)
        if eager:
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            found.append(loss.detach())
        else:
            found.append(step(x, y))
    return found


RATES: dict[str, Callable[[dict[str, Any], int], Any]] = {
    "at each step": lambda group, number: group.update(lr=0.1 / (1 + number)),
    "at some": lambda group, number: group.update(lr=0.1 if number % 4 < 2 else 0.3),
    "in a tensor": lambda group, number: group.update(lr=torch.tensor(0.1 + number)),
    "within a tensor": lambda group, number: group["lr"].fill_(0.1 * number) if number else None,
    "with the momentum": lambda group, number: group.update(lr=0.1, momentum=0.5 + 0.1 * (number // 3)),
}


@pytest.mark.parametrize("name", RATES)
def test_numbers_that_change_between_steps_are_those_of_the_next_step(name: str) -> None:
    found = []
    for eager in (False, True):
        rate = torch.tensor(0.1) if name == "within a tensor" else 0.1
        found.append(train({"lr": rate, "momentum": 0.9, "foreach": False}, RATES[name], eager=eager))

    torch.testing.assert_close(*found)


def test_results_are_borrowed_from_the_moment_on_that_borrow_is_set() -> None:
    steady = Steady()
    own = steady.step(*steady.batch), steady.step(*steady.batch)
    steady.step.borrow = True
    borrowed = steady.step(*steady.batch), steady.step(*steady.batch)
    steady.step.borrow = False

    assert own[0].data_ptr() != own[1].data_ptr()
    assert borrowed[0].data_ptr() == borrowed[1].data_ptr()
    assert steady.step(*steady.batch).data_ptr() != borrowed[0].data_ptr()


@pytest.mark.parametrize("make", [optim.SGD, optim.AdamW], ids=["numbers", "tensors for numbers"])
def test_the_generated_call_takes_the_steps_that_eager_takes(make: Callable[..., optim.Optimizer]) -> None:
    steady, plain = Steady(make), Steady(make)

    for _ in range(3):
        loss = steady.call(steady.batch, {})
        plain.optimizer.zero_grad()
        expected = F.mse_loss(plain.model(plain.batch[0]), plain.batch[1])
        expected.backward()  # type: ignore[no-untyped-call]
        plain.optimizer.step()

    torch.testing.assert_close(loss, expected.detach())
    torch.testing.assert_close(dict(steady.model.state_dict()), dict(plain.model.state_dict()))


def test_grad_mode_is_as_before_after_a_step_that_fails_too(monkeypatch: pytest.MonkeyPatch) -> None:
    steady = Steady()
    assert steady.call.__globals__["commit"] is not None  # type: ignore[attr-defined]

    def fail(*_: Any) -> Any:
        raise RuntimeError("out of luck")

    monkeypatch.setitem(steady.call.__globals__, "commit", fail)  # type: ignore[attr-defined]
    with pytest.raises(RuntimeError, match="out of luck"):
        steady.call(steady.batch, {})

    assert torch.is_grad_enabled()
    assert steady.model(steady.batch[0]).requires_grad
    assert steady.step(*steady.batch).isfinite()


def test_an_interrupt_at_the_end_of_a_step_leaves_the_thread_as_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steady = Steady()

    def record_gradients(enabled: bool) -> None:
        torch._C._set_grad_enabled(enabled)
        if enabled:
            raise KeyboardInterrupt

    monkeypatch.setitem(steady.call.__globals__, "record_gradients", record_gradients)  # type: ignore[attr-defined]
    with pytest.raises(KeyboardInterrupt):
        steady.call(steady.batch, {})

    assert not in_capture()
    assert torch.is_grad_enabled()
    assert steady.model(steady.batch[0]).requires_grad
    assert steady.step(*steady.batch).isfinite()


def test_an_interrupt_at_the_beginning_of_a_step_does_not_keep_its_lock() -> None:
    steady = Steady()

    def interrupt(frame: Any, event: str, called: Any) -> None:
        # As Python handles a signal: at the end of a call, before the next instruction.
        if event == "c_return" and called.__name__ == "acquire":
            raise KeyboardInterrupt

    with contextlib.suppress(KeyboardInterrupt):
        sys.setprofile(interrupt)
        try:
            steady.step(*steady.batch)
        finally:
            sys.setprofile(None)
    other = threading.Thread(target=steady.step, args=steady.batch, daemon=True)
    other.start()
    other.join(timeout=5)

    assert not other.is_alive()


def test_a_step_that_draws_random_numbers_has_no_steady_call() -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.5))
    step = TrainStep(model, optim.SGD(model.parameters(), lr=0.1), F.mse_loss)
    batch = torch.randn(6, 4), torch.randn(6, 3)
    step(*batch)

    call = make_steady_call(step.artifact, step._guards, borrow=False)

    assert call(batch, {}) is CHANGED


def test_a_guard_below_autograd_acts_from_its_making_on_until_it_is_dropped() -> None:
    x = torch.ones(2, requires_grad=True)

    outside = below_autograd()
    inside = (x * 2).requires_grad
    outside = None

    assert not inside
    assert outside is None
    assert (x * 2).requires_grad
