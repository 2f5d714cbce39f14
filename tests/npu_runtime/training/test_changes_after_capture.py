"""Changes after a step was captured are noticed at the next call, which then does what eager does."""

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn, optim
from torch.nn.modules.module import register_module_forward_hook
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils.hooks import RemovableHandle

from npu_runtime import TrainStep
from npu_runtime.errors import TracingError

mse = nn.functional.mse_loss


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)
        self.frozen = nn.Parameter(torch.randn(3, 3), requires_grad=False)
        self.act = nn.Tanh()
        self.shape = (2.0, 1.0)
        self._scale = 1.0
        self.function = torch.tanh

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.function(
            self.act(self.linear(x)) * self._scale * self.shape[0] * getattr(self, "more", 1.0)
        )
        return y @ (self.frozen * 2)


def doubled(module: nn.Module, args: Any, result: Tensor) -> Tensor:
    return result * 2


def relu_forward(net: Net) -> None:
    net.act.forward = torch.relu  # type: ignore[method-assign,assignment]


def relu_class(net: Net) -> None:
    net.act.__class__ = nn.SiLU
    net.act.inplace = False  # type: ignore[assignment]


def triple_frozen(net: Net) -> None:
    net.frozen.data.mul_(3)  # which counts as no version of the tensor


def transpose_frozen(net: Net) -> None:
    net.frozen.data = net.frozen.data.t()


CHANGES: dict[str, Callable[[Net], Any]] = {
    "a forward hook": lambda net: net.linear.register_forward_hook(doubled),
    "a hook before forward": lambda net: net.linear.register_forward_pre_hook(lambda _, args: (args[0] * 2,)),
    "a hook of backward": lambda net: net.act.register_full_backward_hook(
        lambda _, inner, outer: (inner[0] * 2,)
    ),
    "a tensor that is not trained": triple_frozen,
    "the strides of a tensor": transpose_frozen,
    "the forward of a module": relu_forward,
    "the class of a module": relu_class,
    "a tuple": lambda net: setattr(net, "shape", (0.5, 1.0)),
    "a private number": lambda net: setattr(net, "_scale", 3.0),
    "a function": lambda net: setattr(net, "function", torch.relu),
    "a new attribute": lambda net: setattr(net, "more", 4.0),
    "a number that becomes a tensor": lambda net: setattr(net, "_scale", torch.tensor([1.0, 2.0, 3.0])),
}


def eager(model: nn.Module, optimizer: optim.Optimizer, loss: Any, x: Tensor, y: Tensor) -> Tensor:
    optimizer.zero_grad()
    result: Tensor = loss(model(x), y)
    result.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    return result.detach()


def losses(change: Callable[[Net], Any], is_eager: bool) -> list[Tensor]:
    torch.manual_seed(0)
    model = Net()
    optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    x, y = torch.randn(6, 4), torch.randn(6, 3)
    step = TrainStep(model, optimizer, mse)
    found = []
    for number in range(4):
        if number == 2:
            change(model)
        found.append(eager(model, optimizer, mse, x, y) if is_eager else step(x, y))
    return found


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_of_a_module_is_noticed(change: Callable[[Net], Any]) -> None:
    torch.testing.assert_close(losses(change, is_eager=False), losses(change, is_eager=True))


def test_a_hook_of_all_modules_is_noticed() -> None:
    handles: list[RemovableHandle] = []

    def double_linear(module: nn.Module, args: Any, result: Tensor) -> Tensor | None:
        return result * 2 if isinstance(module, nn.Linear) else None

    def register(net: Net) -> None:
        handles.append(register_module_forward_hook(double_linear))

    found = []
    for is_eager in (False, True):
        found.append(losses(register, is_eager=is_eager))
        handles.pop().remove()

    torch.testing.assert_close(*found)


@pytest.fixture
def parts() -> tuple[nn.Module, optim.Optimizer, Tensor, Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
    return model, optim.SGD(model.parameters(), lr=0.1, momentum=0.9), torch.randn(6, 4), torch.randn(6, 3)


def test_a_hook_on_a_parameter_is_refused_after_capture_too(parts: Any) -> None:
    model, optimizer, x, y = parts
    step = TrainStep(model, optimizer, mse)
    step(x, y)
    model[0].weight.register_hook(lambda gradient: gradient * 2)

    with pytest.raises(TracingError, match=r"the parameter '0\.weight' has hooks"):
        step(x, y)


def test_a_hook_on_the_optimizer_is_refused_after_capture_too(parts: Any) -> None:
    model, optimizer, x, y = parts
    step = TrainStep(model, optimizer, mse)
    step(x, y)
    optimizer.register_step_post_hook(lambda *_: None)

    with pytest.raises(TracingError, match="SGD has hooks on its step"):
        step(x, y)


def test_a_hook_on_all_optimizers_is_refused_after_capture_too(parts: Any) -> None:
    model, optimizer, x, y = parts
    step = TrainStep(model, optimizer, mse)
    step(x, y)
    hook = register_optimizer_step_pre_hook(lambda *_: None)

    with hook, pytest.raises(TracingError, match="SGD has hooks on its step"):
        step(x, y)

    assert step(x, y).isfinite()


def test_a_step_that_is_set_on_the_optimizer_is_refused(parts: Any) -> None:
    model, optimizer, _, _ = parts
    optimizer.step = lambda: None

    with pytest.raises(TracingError, match="SGD has a step that was set on the optimizer itself"):
        TrainStep(model, optimizer, mse)


def test_a_setting_of_a_loss_without_tensors_is_noticed() -> None:
    found = []
    for is_eager in (True, False):
        torch.manual_seed(0)
        model, loss = nn.Linear(4, 3), nn.CrossEntropyLoss()
        optimizer = optim.SGD(model.parameters(), lr=0.1)
        step = TrainStep(model, optimizer, loss)
        x, y = torch.randn(6, 4), torch.randint(3, (6,))
        run = (lambda x, y, m=model, o=optimizer, f=loss: eager(m, o, f, x, y)) if is_eager else step
        first = run(x, y)
        loss.label_smoothing = 0.5
        found.append([first, run(x, y)])

    torch.testing.assert_close(found[1], found[0])


def test_another_dtype_of_autocast_is_noticed(parts: Any) -> None:
    model, optimizer, x, y = parts
    seen: list[torch.dtype] = []
    step = TrainStep(
        model, optimizer, lambda prediction, y: (seen.append(prediction.dtype), mse(prediction, y))[1]
    )
    for dtype in (torch.bfloat16, torch.float16, torch.bfloat16):
        with torch.autocast("cpu", dtype=dtype):
            step(x, y)

    assert seen == [torch.bfloat16, torch.float16]


def test_a_mode_around_a_call_needs_no_other_trace(parts: Any) -> None:
    model, optimizer, x, y = parts
    traces: list[Tensor] = []

    def loss(prediction: Tensor, y: Tensor) -> Tensor:
        traces.append(prediction)
        return mse(prediction, y)

    step = TrainStep(model, optimizer, loss)
    for mode in (contextlib.nullcontext(), torch.device("meta"), contextlib.nullcontext()):
        expected = mse(model(x), y)
        with mode:
            found = [step(x, y), step(x, y)]
        torch.testing.assert_close(found[0], expected.detach())

    assert len(traces) == 1


def test_state_that_is_set_to_none_begins_anew(parts: Any) -> None:
    model, optimizer, x, y = parts
    step = TrainStep(model, optimizer, mse)
    step(x, y)
    for entries in optimizer.state.values():
        entries["momentum_buffer"] = None
    before = model[0].weight.detach().clone()
    mse(model(x), y).backward()
    step(x, y)

    torch.testing.assert_close(model[0].weight.detach(), before - 0.1 * model[0].weight.grad)


def test_state_of_another_dtype_is_traced_again() -> None:
    torch.manual_seed(0)
    model = nn.Linear(4, 3).double()
    optimizer = optim.ASGD(model.parameters(), lr=0.1)
    x, y = torch.randn(6, 4).double(), torch.randn(6, 3).double()
    step = TrainStep(model, optimizer, mse)
    step(x, y)
    optimizer.load_state_dict(optimizer.state_dict())  # which makes eta and mu of the dtype of the weights
    before = model.weight.detach().clone()

    step(x, y)

    assert not torch.equal(model.weight, before)
    assert optimizer.state[model.weight]["mu"].dtype is torch.float64


def test_memory_that_comes_back_after_a_call_that_failed_is_trained(parts: Any) -> None:
    model, optimizer, x, y = parts
    step = TrainStep(model, optimizer, mse)
    step(x, y)
    step(x, y)
    own = model[0].weight.data
    model[0].weight.data = own.clone()
    with pytest.raises(TracingError, match="the step cannot be traced"):
        step(torch.randn(6, 5), y)
    model[0].weight.data = own
    before = own.clone()

    step(x, y)

    assert not torch.equal(model[0].weight, before)


def test_a_number_of_the_optimizer_that_becomes_an_integer_and_a_float_again_is_noticed(parts: Any) -> None:
    found = []
    for is_eager in (False, True):
        torch.manual_seed(0)
        model = nn.Linear(4, 3)
        optimizer = optim.SGD(model.parameters(), lr=0.1)
        step = TrainStep(model, optimizer, mse)
        _, _, x, y = parts
        for decay in (0, 0.1, 0, 0.1, 0.1):
            optimizer.param_groups[0]["weight_decay"] = decay
            eager(model, optimizer, mse, x, y) if is_eager else step(x, y)
        found.append(model.weight.detach())

    torch.testing.assert_close(*found)


def swap_groups(optimizer: optim.Optimizer) -> None:
    optimizer.param_groups.reverse()


def move_into_first_group(optimizer: optim.Optimizer) -> None:
    first, second = optimizer.param_groups
    optimizer.param_groups = [
        {**first, "params": [*first["params"], *second["params"][:1]]},
        {**second, "params": second["params"][1:]},
    ]


def merge_groups(optimizer: optim.Optimizer) -> None:
    first, second = optimizer.param_groups
    optimizer.param_groups = [{**first, "params": [*first["params"], *second["params"]]}]


def train_with_change(
    optimizer_of: Callable[[nn.Sequential], Any], change: Callable[[Any], Any], is_eager: bool
) -> dict[str, torch.Tensor]:
    """Take six steps, change the optimizer after the third, and return the weights."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 3))
    optimizer = optimizer_of(model)
    step = TrainStep(model, optimizer, mse)
    x, y = torch.randn(6, 4), torch.randn(6, 3)
    for number in range(6):
        if number == 3:
            change(optimizer)
        eager(model, optimizer, mse, x, y) if is_eager else step(x, y)
    return dict(model.state_dict())


@pytest.mark.parametrize("change", [swap_groups, move_into_first_group, merge_groups])
def test_parameters_are_trained_with_the_rate_of_the_group_they_are_in(
    change: Callable[[optim.Optimizer], None],
) -> None:
    def optimizer_of(layers: nn.Sequential) -> optim.Optimizer:
        first, second = (list(layer.parameters()) for layer in layers)
        return optim.SGD([{"params": first}, {"params": second, "lr": 0.3}], lr=0.01, momentum=0.9)

    trained, expected = (train_with_change(optimizer_of, change, is_eager) for is_eager in (False, True))

    torch.testing.assert_close(trained, expected)


def test_a_tensor_of_a_module_that_cannot_be_compared_by_memory_does_not_prevent_a_step(parts: Any) -> None:
    model, optimizer, x, y = parts
    model.sparse = torch.eye(3).to_sparse()
    with torch.inference_mode():
        model.made = torch.ones(3)
    step = TrainStep(model, optimizer, mse)

    losses = [step(x, y) for _ in range(4)]

    assert losses[3] < losses[0]


class Boosted(optim.Optimizer):
    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"lr": 0.01})
        self.factor = 1.0

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                rate = group["lr"] * self.factor * group.get("boost", 1.0)
                parameter.add_(parameter.grad, alpha=-rate)


OPTIMIZER_CHANGES: dict[str, Callable[[Boosted], Any]] = {
    "an attribute": lambda optimizer: setattr(optimizer, "factor", 5.0),
    "a new entry of a group": lambda optimizer: optimizer.param_groups[0].update(boost=5.0),
}


@pytest.mark.parametrize("change", OPTIMIZER_CHANGES.values(), ids=OPTIMIZER_CHANGES)
def test_what_the_step_of_an_own_optimizer_reads_is_noticed(change: Callable[[Boosted], Any]) -> None:
    def optimizer_of(layers: nn.Sequential) -> Boosted:
        return Boosted(layers.parameters())

    trained, expected = (train_with_change(optimizer_of, change, is_eager) for is_eager in (False, True))

    torch.testing.assert_close(trained, expected)
