"""`TrainStep.run` on the backend `host`: many steps in one call into C++."""

import copy
import itertools
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from npu_ir import BackendError
from npu_runtime import CaptureError, TrainStep

Batch = tuple[Tensor, Tensor]
OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adam": lambda parameters: torch.optim.Adam(parameters, 0.01),
    "sgd": lambda parameters: torch.optim.SGD(parameters, 0.1, momentum=0.9),
}
LAYERS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "dropout": lambda: nn.Dropout(0.4),
    "batch norm": lambda: nn.BatchNorm1d(16),
}


def loss_of(output: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    return F.cross_entropy(output, target), output


def make_step(layer: str = "relu", optimizer: str = "adam") -> tuple[nn.Module, TrainStep]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), LAYERS[layer](), nn.Linear(16, 4))
    return model, TrainStep(model, OPTIMIZERS[optimizer](model.parameters()), loss_of, backend="host")


def make_batches(count: int) -> list[Batch]:
    generator = torch.Generator().manual_seed(1)
    return [
        (torch.randn(5, 8, generator=generator), torch.randint(0, 4, (5,), generator=generator))
        for _ in range(count)
    ]


def assert_same(found: nn.Module, expected: nn.Module) -> None:
    for name, item in expected.state_dict().items():
        assert torch.equal(found.state_dict()[name], item), name


def python_calls(function: Callable[[], Any]) -> int:
    """Return the number of calls that this thread makes, of Python and of C."""
    count = 0

    def see(_frame: Any, event: str, _argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(see)
    try:
        function()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("layer", LAYERS)
def test_a_run_equals_as_many_calls_to_the_bit(layer: str, optimizer: str) -> None:
    batches = make_batches(50)
    expected, calls = make_step(layer, optimizer)
    torch.manual_seed(2)
    results = [calls(*batch) for batch in batches]
    made, step = make_step(layer, optimizer)

    torch.manual_seed(2)
    losses, outputs = step.run(batches)

    assert torch.equal(losses, torch.stack([loss for loss, _ in results]))
    assert torch.equal(outputs, torch.stack([output for _, output in results]))
    assert_same(made, expected)


@pytest.mark.parametrize("layer", ["relu", "batch norm"])
def test_a_native_step_of_a_run_takes_no_call_of_python(layer: str) -> None:
    _, step = make_step(layer)
    batches = make_batches(4)
    step.run(batches)

    few = python_calls(lambda: step.run(batches))
    many = python_calls(lambda: step.run(batches * 100))

    assert many - few < 100  # it looks for signals ten times a second


def test_a_step_of_a_run_that_fails_changes_nothing() -> None:
    batches = make_batches(30)
    expected, calls = make_step()
    for batch in batches[:17]:
        calls(*batch)
    made, step = make_step()
    wrong = batches[17][0], torch.full((5,), 99)

    with pytest.raises(BackendError, match=r"(?s)step 18 of run: .*target 99 of row 0.*'nll_loss_forward'"):
        step.run([*batches[:17], wrong, *batches[17:]])

    assert_same(made, expected)
    assert step.run(batches)[0].shape == (30,)


def test_an_interrupt_ends_a_run_between_two_steps() -> None:
    made, step = make_step()
    batches = make_batches(3)
    drawn = 0

    def endless() -> Iterator[Batch]:
        nonlocal drawn
        for drawn, batch in enumerate(itertools.islice(itertools.cycle(batches), 1_000_000), 1):
            if drawn == 50:
                os.kill(os.getpid(), signal.SIGINT)
            yield batch

    handler = signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # jobs in the background of a shell ignore it
    try:
        with pytest.raises(KeyboardInterrupt):
            step.run(endless())
    finally:
        signal.signal(signal.SIGINT, handler)

    assert "npu-batches" not in [thread.name for thread in threading.enumerate()]
    # The state is that after some number of steps, no more than were drawn.
    expected, calls = make_step()
    for batch in itertools.islice(itertools.cycle(batches), drawn):
        if torch.equal(expected.get_parameter("0.bias"), made.get_parameter("0.bias")):
            break
        calls(*batch)
    assert_same(made, expected)


@pytest.mark.parametrize("slow", [0.3, 0.0])
def test_steps_wait_for_batches_that_take_long(slow: float) -> None:
    batches = make_batches(6)
    expected, calls = make_step()
    losses = [calls(*batch)[0] for batch in batches]
    made, step = make_step()

    def draw() -> Iterator[Batch]:
        for index, batch in enumerate(batches):
            time.sleep(slow if index == 4 else 0.01)
            yield batch

    found, _ = step.run(draw())

    assert torch.equal(found, torch.stack(losses))
    assert_same(made, expected)


def test_an_iterable_that_takes_a_step_itself_is_refused() -> None:
    _, step = make_step()
    batches = make_batches(6)

    def nested() -> Iterator[Batch]:
        yield from batches
        step(*batches[0])
        yield batches[0]

    with pytest.raises(CaptureError, match="(?s)step 7 of run: a step calls itself.*the iterable of batches"):
        step.run(nested())


def test_runs_go_on_after_a_change_that_traces_the_step_again() -> None:
    batches = make_batches(9)
    expected, calls = make_step("dropout", "sgd")
    made, step = make_step("dropout", "sgd")
    for model, run in ((expected, None), (made, step.run)):
        torch.manual_seed(3)
        for start in range(0, 9, 3):
            model.train(start != 3)
            part = batches[start : start + 3]
            if run is None:
                for batch in part:
                    calls(*batch)
            else:
                run(part)

    assert_same(made, expected)
    assert copy.deepcopy(made).training
