"""The generated call of a step takes the steps of eager PyTorch, and leaves the thread as it was."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn, optim
from torch.nn import functional as F

from npu_runtime import TrainStep
from npu_runtime._torch.state import below_autograd
from npu_runtime.training.capture.capture_state import in_capture
from npu_runtime.training.steady_call import CHANGED, make_steady_call
from tests.npu_runtime.training.steady import Steady


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

    call = make_steady_call(step.artifact, step._specializations.guards, borrow=False)

    assert call(batch, {}) is CHANGED


def test_a_guard_below_autograd_acts_from_its_making_on_until_it_is_dropped() -> None:
    x = torch.ones(2, requires_grad=True)

    outside = below_autograd()
    inside = (x * 2).requires_grad
    outside = None

    assert not inside
    assert outside is None
    assert (x * 2).requires_grad
