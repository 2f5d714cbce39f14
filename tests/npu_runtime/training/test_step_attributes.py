"""Changes of a step in Python, and invalid options and components."""

import copy
import operator
import random
import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from npu_runtime import TracingError, TrainStep
from npu_runtime.errors import FallbackWarning
from npu_runtime.training import specializations
from tests.support.rows import each_row


class Counting(nn.Module):
    """Changes an attribute of its own in each forward, in one of three ways."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2)
        self.way = way
        self.calls = 0
        self.scale = torch.ones(2)
        self.last = torch.zeros(1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.linear(x)
        if self.way == "number":
            self.calls += 1
            return y * self.calls
        if self.way == "tensor":
            self.scale = self.scale + 1
            return y * self.scale
        self.last = y
        return y


def step_of(model: nn.Module, **options: object) -> TrainStep:
    return TrainStep(model, torch.optim.SGD(model.parameters(), lr=0.1), F.mse_loss, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(("way", "text"), [
    pytest.param("number", r"changes 'calls' from 0 to 1: a graph would not", id="number"),
    pytest.param("tensor", r"changes 'scale' to another tensor: a graph would not", id="tensor that is read"),
])  # fmt: skip
def test_a_module_that_changes_its_attributes_is_refused(way: str, text: str) -> None:
    model = Counting(way)

    with pytest.raises(TracingError, match=f"(?s){text}.*register_buffer"):
        step_of(model)(torch.randn(4, 3), torch.randn(4, 2))

    assert model.calls == 0
    assert torch.equal(model.scale, torch.ones(2))


CALLS = [0]


class Python(nn.Module):
    """A layer whose forward also runs a function, which changes what it can reach in Python."""

    def __init__(self, function: Callable[["Python"], Any]) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2)
        self.function = function
        self.counts = [0]
        self.scales = {"decay": 1.0}
        self.options = SimpleNamespace(calls=0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.function(self)
        y: torch.Tensor = self.linear(x)
        return y


def count_in(counts: list[int]) -> Callable[[Python], None]:
    def count(_: Python) -> None:
        counts[0] += 1

    return count


def count_globally(_: Python) -> None:
    CALLS[0] += 1


@each_row("function, message", {
    "list": (lambda model: operator.setitem(model.counts, 0, 1), "changes 'counts.0' from 0 to 1: a graph"),
    "dict": (lambda model: operator.setitem(model.scales, "decay", 0.5),
        "changes 'scales.decay' from 1.0 to 0.5: a graph would not"),
    "object": (lambda model: setattr(model.options, "calls", 3), "changes 'options.calls' from 0 to 3: a"),
    "closure": (count_in([5]), "changes 'counts of count_in.<locals>.count.0' from 5 to 6: a graph"),
    "global": (count_globally, "test_step_attributes.CALLS.0' from 0 to 1: a graph would not"),
    "random": (lambda _: random.random(), "the step draws random numbers of random: a graph would"),
    "numpy": (lambda _: np.random.rand(), "the step draws random numbers of numpy.random: a graph would"),
})  # fmt: skip
def test_python_state_that_a_step_changes_is_refused(function: Callable[[Python], Any], message: str) -> None:
    with pytest.raises(TracingError, match=f"(?s){re.escape(message)}.*fix: "):
        step_of(Python(function))(torch.randn(4, 3), torch.randn(4, 2))


def test_a_number_of_the_object_whose_method_is_the_step_is_refused() -> None:
    class Trainer:
        def __init__(self) -> None:
            self.model, self.steps = nn.Linear(3, 2), 0
            self.optimizer = torch.optim.SGD(self.model.parameters(), 0.1)

        def step(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            self.optimizer.zero_grad()
            loss = F.mse_loss(self.model(x), y)
            loss.backward()
            self.optimizer.step()
            self.steps += 1
            return loss

    with pytest.raises(TracingError, match=r"changes 'the step.steps' from 0 to 1: a graph would not"):
        TrainStep(Trainer().step)(torch.randn(4, 3), torch.randn(4, 2))


def test_python_state_that_a_step_reads_is_no_obstacle() -> None:
    generator = random.Random(0)
    model = Python(lambda model: model.counts[0] + model.options.calls + CALLS[0] + generator.random())

    loss = step_of(model)(torch.randn(4, 3), torch.randn(4, 2))

    assert loss.isfinite()


def test_a_parameter_in_a_batch_is_refused() -> None:
    model = nn.Linear(3, 3)

    with pytest.raises(
        TracingError, match=r"the batch contains the parameter 'weight' of the step\n.*detach"
    ):
        step_of(model)(model.weight, torch.randn(3, 3))

    assert step_of(model)(model.weight.detach(), torch.randn(3, 3)).isfinite()


def test_a_module_may_leave_a_tensor_in_an_attribute() -> None:
    model = Counting("stash")
    before = model.last

    loss = step_of(model)(torch.randn(4, 3), torch.randn(4, 2))

    assert loss.requires_grad is False
    assert model.last is before


@pytest.mark.parametrize(("options", "text"), [
    pytest.param({"accumulate": 0}, "at least one part, not accumulate=0", id="no part"),
    pytest.param({"accumulate": 1.5}, "at least one part, not accumulate=1.5", id="half a part"),
    pytest.param({"autocast": "bf16"}, "autocast is a dtype, not 'bf16'", id="autocast"),
    pytest.param({"clip_grad_norm": -1.0}, "at least 0, not clip_grad_norm=-1.0", id="a negative norm"),
    pytest.param({"clip_grad_value": float("nan")}, "at least 0, not clip_grad_value=nan", id="no number"),
])  # fmt: skip
def test_options_that_make_no_step_are_refused(options: dict[str, object], text: str) -> None:
    with pytest.raises(TracingError, match=text):
        step_of(nn.Linear(3, 2), **options)


def test_a_loss_that_is_not_a_function_is_refused() -> None:
    model = nn.Linear(3, 2)

    with pytest.raises(TracingError, match="a loss is a function .*, not 'mse'\n  fix: loss_fn=torch.nn"):
        TrainStep(model, torch.optim.SGD(model.parameters(), lr=0.1), "mse")  # type: ignore[arg-type]


def test_a_lazy_module_is_refused_before_it_is_traced() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.LazyLinear(2))

    with pytest.raises(TracingError, match="'1.weight' has no shape yet: its module is lazy"):
        TrainStep(model, torch.optim.SGD(model[0].parameters(), lr=0.1), F.mse_loss)


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
@pytest.mark.parametrize(
    ("wrap", "name"),
    [
        pytest.param(lambda module: module, "the model", id="alone"),
        pytest.param(lambda module: nn.Sequential(nn.Tanh(), module), "'1'", id="inside"),
    ],
)
def test_a_module_of_torchscript_is_refused_before_it_is_traced(wrap: Any, name: str) -> None:
    model = wrap(torch.jit.script(nn.Linear(3, 2)))

    with pytest.raises(TracingError, match=f"{name} is compiled by TorchScript.*\n  fix: give the module"):
        step_of(model)


def test_a_parameter_of_two_modules_is_refused_and_one_of_their_common_module_is_trained() -> None:
    parts = nn.ModuleDict({"first": nn.Linear(3, 2), "second": nn.Linear(3, 2)})
    first, second = parts["first"], parts["second"]
    second.weight = first.weight
    optimizer = torch.optim.SGD(parts.parameters(), lr=0.1)

    def step(forward: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = F.mse_loss(forward(x), y)
        loss.backward()
        optimizer.step()
        return loss

    def apart(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return step(lambda item: first(item) + second(item), x, y)

    def together(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return step(lambda item: parts["first"](item) + parts["second"](item), x, y)

    batch = torch.randn(4, 3), torch.randn(4, 2)
    with pytest.raises(
        TracingError, match="'(first|second).weight' are one tensor in two modules.*\n.*ModuleDict"
    ):
        TrainStep(apart)
    trained = TrainStep(together, modules=[parts], optimizers=[optimizer])

    expected = F.mse_loss(first(batch[0]) + second(batch[0]), batch[1]).detach()
    torch.testing.assert_close(trained(*batch), expected)
    assert first.weight is second.weight


@pytest.mark.parametrize("steps", [0, 3])
def test_a_step_within_a_transform_of_functions_is_refused_and_leaves_the_model(steps: int) -> None:
    model = nn.Linear(3, 2)
    step = step_of(model)
    x, y = torch.randn(4, 3), torch.randn(4, 2)
    for _ in range(steps):
        step(x, y)
    before = copy.deepcopy(model.state_dict())

    with pytest.raises(
        TracingError, match="within a transform of torch.func, which does not see what a replay"
    ):
        torch.func.grad(lambda item: step(item, y))(x)

    torch.testing.assert_close(dict(model.state_dict()), dict(before), rtol=0, atol=0)
    assert step(x, y).isfinite()


def test_too_many_kinds_of_batches_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(specializations, "MAX_SPECIALIZATIONS", 2)
    step = step_of(nn.Linear(3, 2))
    for rows in (2, 3):
        step(torch.randn(rows, 3), torch.randn(rows, 2))

    with pytest.warns(FallbackWarning, match="traced for more than 2 kinds of batches and modes") as warned:
        step(torch.randn(4, 3), torch.randn(4, 2))

    assert warned[0].filename == __file__
    with pytest.warns(FallbackWarning, match="kinds of batches") as warned:
        step.run([(torch.randn(5, 3), torch.randn(5, 2))])
    assert warned[0].filename == __file__


def test_a_step_and_its_artifact_are_shown_in_a_line() -> None:
    model = nn.Linear(3, 2)
    step = step_of(model)

    before = repr(step)
    step(torch.randn(4, 3), torch.randn(4, 2))

    assert before == "<TrainStep: 0 specializations, no step taken>"
    assert re.fullmatch(
        r"<CompileArtifact '\w+': \d+ nodes, \d+ updates, planned on cpu by aten>", repr(step.artifact)
    )
    assert repr(step) == f"<TrainStep: 1 specializations, the last one {step.artifact!r}>"
