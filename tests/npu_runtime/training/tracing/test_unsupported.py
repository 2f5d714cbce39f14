"""Steps that cannot be a graph are refused by name, with a fix; and nothing has changed then."""

import copy
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn, optim

from npu_ir import ConversionError, Graph
from npu_runtime import TrainStep
from npu_runtime.errors import TracingError
from npu_runtime.training import compile_ir
from tests.support.corpus.case import Holding
from tests.support.rows import each_row
from tests.support.training.models import MLP


def step_of(
    model: nn.Module,
    optimizer: optim.Optimizer | None = None,
    loss: Callable[..., Any] = F.mse_loss,
    **options: Any,
) -> Graph:
    x, y = torch.randn(5, 7), torch.randn(5, 3)
    return compile_ir(model, optimizer or optim.SGD(model.parameters(), 0.1), loss, (x, y), **options)


def refused(what: str, instead: str) -> Any:
    """Expect an error that says both, in this order."""
    return pytest.raises(TracingError, match=f"(?s){re.escape(what)}.*{re.escape(instead)}")


class KeepsNumbers(optim.SGD):
    """Counts its steps in a number of Python."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, 0.1)
        for parameter in self.param_groups[0]["params"]:
            self.state[parameter]["count"] = 0


class Decays(optim.SGD):
    """Changes its own learning rate."""

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        super().step(closure)
        for group in self.param_groups:
            group["lr"] *= 0.5


class Hooked(optim.SGD):
    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, 0.1)
        self.register_step_post_hook(lambda *_: None)


Given = Callable[[nn.Module], dict[str, Any]]


def trained_by(kind: Any) -> Given:
    return lambda model: {"optimizer": kind(model.parameters())}


def with_loss(loss: Callable[..., Any]) -> Given:
    return lambda _: {"loss": loss}


def with_result(result: Any, **options: Any) -> Given:
    return lambda _: {"loss": lambda *pair: (F.mse_loss(*pair), result), **options}


def hooked(register: str) -> Given:
    def given(model: Any) -> dict[str, Any]:
        getattr(model.fc2.weight, register)(lambda _: None)
        return {}

    return given


REFUSED: list[tuple[str, Given, str, str]] = [
    ("LBFGS", trained_by(optim.LBFGS), "LBFGS cannot be traced: it evaluates the loss a number", "use Adam"),
    ("Adafactor", trained_by(optim.Adafactor), "it compares the content of tensors in Python", "use Adam"),
    ("SparseAdam", trained_by(optim.SparseAdam), "its gradients are sparse", "use Adam"),
    ("count", trained_by(KeepsNumbers), "KeepsNumbers keeps 'count' as int", "keep it as a tensor"),
    ("rate", trained_by(Decays), "the step of Decays changes 'lr' of its group 0", "keep what a step"),
    ("hook of a step", trained_by(Hooked), "Hooked has hooks on its step", "remove them"),
    ("hook", hooked("register_hook"), "the parameter 'fc2.weight' has hooks", "between backward() and"),
    ("late hook", hooked("register_post_accumulate_grad_hook"), "'fc2.weight' has hooks", "between"),
    ("number", with_loss(lambda *pair: F.mse_loss(*pair).item()), "", ""),
    ("item", with_loss(lambda *pair: (F.mse_loss(*pair), F.mse_loss(*pair).item())), "", ".item()"),
    ("each", with_loss(lambda y, target: y - target), "the loss has the shape (5, 3)", "loss.mean()"),
    ("detached", with_loss(lambda y, _: y.detach().sum()), "does not depend on any parameter", ".detach()"),
    ("object", with_result(object()), "returns object, which is not a tensor", "leave the object out"),
    ("result", with_result(3), "the step returns a number where its results are", "not loss.item()"),
    ("nothing", with_result(None), "the step returns nothing where", "return the loss itself"),
    ("nothing of parts", with_result(None, accumulate=5), "the step returns nothing where",
        "the loss itself"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "what", "instead"), [pytest.param(*row[1:], id=row[0]) for row in REFUSED])
def test_a_step_that_cannot_be_a_graph_is_refused(given: Given, what: str, instead: str) -> None:
    model = MLP()

    with refused(what, instead):
        step_of(model, **given(model))


def around(function: Callable[..., Any]) -> nn.Module:
    """Return a model that is a function of another one, ``self.mlp``, and the input."""
    return Holding(function, mlp=MLP())


def branching(self: Any, x: torch.Tensor) -> torch.Tensor:
    return self.mlp(x) if x.mean() > 0 else self.mlp(-x)  # type: ignore[no-any-return]


def averaging(self: Any, x: torch.Tensor) -> torch.Tensor:
    """Average the statistics of a norm over all batches: it takes a counter of them to Python."""
    return self.mlp(self.norm(x))  # type: ignore[no-any-return]


@pytest.mark.parametrize(("model", "what", "instead"), [
    pytest.param(around(branching), "decides by the content of a tensor", "torch.where", id="branch"),
    pytest.param(around(lambda self, x: self.mlp(x) * x.abs().max().item()), "content of a tensor",
        "no .item()", id="item"),
    pytest.param(Holding(averaging, mlp=MLP(), norm=nn.BatchNorm1d(7, momentum=None)), "content of a tensor",
        "", id="mean of statistics"),
])  # fmt: skip
def test_a_model_that_reads_a_tensor_in_python_is_refused_and_nothing_has_changed(
    model: nn.Module, what: str, instead: str
) -> None:
    optimizer = optim.Adam(model.parameters())
    before = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
    batch = torch.randn(5, 7), torch.randn(5, 3)
    random_state = torch.get_rng_state()

    with refused(what, instead) as caught:
        compile_ir(model, optimizer, F.mse_loss, batch)

    assert "test_unsupported.py" in str(caught.value)
    assert "unhinted" not in caught.value.message, "what torch.export adds for its own users"
    torch.testing.assert_close((model.state_dict(), optimizer.state_dict()), before, rtol=0, atol=0)
    assert torch.equal(torch.get_rng_state(), random_state)
    assert all(parameter.grad is None for parameter in model.parameters())


def losing_by_ctc(prediction: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    lengths = torch.full((3,), 5), torch.full((3,), 2)
    return F.ctc_loss(prediction.log_softmax(-1)[:, None].expand(5, 3, 3), target.long()[:3, :2], *lengths)


def scaled(self: Any, x: torch.Tensor) -> torch.Tensor:
    return self.mlp(x) * self.mlp.fc1.weight.scale  # type: ignore[no-any-return]


def packing(self: Any, x: torch.Tensor) -> torch.Tensor:
    rows = self.mlp(x).expand(2, 5, 3)
    packed = nn.utils.rnn.pack_padded_sequence(rows, [5, 3], batch_first=True, enforce_sorted=False)
    return nn.utils.rnn.pad_packed_sequence(self.rnn(packed)[0], batch_first=True)[0][0]


@each_row("model, loss, what", {
    "ctc": (MLP(), losing_by_ctc, "content of a tensor (of aten._ctc_loss.Tensor)"),
    "packed": (Holding(packing, mlp=MLP(), rnn=nn.GRU(3, 3, batch_first=True)), F.mse_loss, "content of a"),
})  # fmt: skip
def test_sizes_that_depend_on_data_are_refused_by_name(
    model: nn.Module, loss: Callable[..., Any], what: str
) -> None:
    with refused(f"the step has sizes that depend on the {what}", "outside of the step") as caught:
        step_of(model, loss=loss)

    assert "test_unsupported.py" in str(caught.value.where)


def test_an_attribute_of_a_parameter_is_refused_by_name() -> None:
    mlp = MLP()
    mlp.fc1.weight.scale = 2.0  # type: ignore[assignment]

    with refused("attribute of a tensor that is not one of PyTorch: 'FakeTensor'", "of the module") as caught:
        step_of(Holding(scaled, mlp=mlp))

    assert "test_unsupported.py" in str(caught.value.where)


@pytest.mark.parametrize("model", [
    pytest.param(around(lambda self, x: self.mlp(x[:, 1:])), id="shapes"),
    pytest.param(around(lambda self, x: self.mlp(x) * len(x.detach().numpy())), id="numpy"),
])  # fmt: skip
def test_a_step_that_fails_otherwise_is_told_to_run_in_eager_pytorch(model: nn.Module) -> None:
    with pytest.raises(
        TracingError, match=r"the step cannot be traced: (?s:.*)\n  fix: run the step in eager"
    ):
        step_of(model)


def test_gradients_that_are_kept_from_step_to_step_are_refused() -> None:
    model = MLP()
    optimizer = optim.SGD(model.parameters(), 0.1)

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    with refused("the step adds to gradients that are there before it", "zero_grad()"):
        compile_ir(step, example_batch=(torch.randn(5, 7), torch.randn(5, 3)))


Scaling = Callable[[torch.amp.GradScaler, nn.Module, optim.Optimizer], Callable[..., Any]]


def scaled_step(scaler: torch.amp.GradScaler, model: nn.Module, optimizer: optim.Optimizer) -> Any:
    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss

    return TrainStep(step)


@pytest.mark.parametrize(("make", "what"), [
    pytest.param(scaled_step, "the step calls scale() of a GradScaler", id="step function"),
    pytest.param(
        lambda scaler, model, optimizer: TrainStep(
            model, optimizer, lambda *given: scaler.scale(F.mse_loss(*given))
        ),
        "the step calls scale() of a GradScaler",
        id="loss",
    ),
    pytest.param(lambda scaler, model, optimizer: TrainStep(model, optimizer, F.mse_loss, autocast=scaler),
        "autocast= is a GradScaler", id="option"),
    pytest.param(lambda scaler, model, optimizer: TrainStep(model, optimizer, F.mse_loss, scaler=scaler),
        "scaler= is a GradScaler", id="scaler"),
])  # fmt: skip
def test_a_scaler_of_gradients_is_refused_and_stays_as_it_was(make: Scaling, what: str) -> None:
    model, scaler = MLP(), torch.amp.GradScaler("cpu", init_scale=8.0)
    optimizer = optim.SGD(model.parameters(), 0.1)
    before = scaler.state_dict()
    x, y = torch.randn(5, 7), torch.randn(5, 3)

    with refused(f"{what}, which decides in Python", "autocast=torch.bfloat16 needs no scaling"):
        make(scaler, model, optimizer)(x, y)

    assert scaler.state_dict() == before
    scaler.scale(F.mse_loss(model(x), y)).backward()  # type: ignore[no-untyped-call]
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 8.0


def test_a_scaler_that_is_off_may_stay_in_a_step() -> None:
    model, twin = MLP(), MLP()
    twin.load_state_dict(model.state_dict())
    x, y = torch.randn(5, 7), torch.randn(5, 3)
    scaler = torch.amp.GradScaler("cpu", enabled=False)

    loss = scaled_step(scaler, model, optim.SGD(model.parameters(), 0.1))(x, y)

    assert torch.equal(loss, F.mse_loss(twin(x), y).detach())
    assert not torch.equal(model.fc1.weight, twin.fc1.weight)


def test_an_option_of_models_is_refused_for_a_step_function() -> None:
    with refused("a step function stands alone: function was given with other parts of a step", "compile_ir"):
        compile_ir(lambda x: x, example_batch=(torch.ones(2),), clip_grad_norm=1.0)


def test_a_generator_of_its_own_is_refused_in_a_step() -> None:
    generator = torch.Generator().manual_seed(0)

    def noisy(prediction: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return F.mse_loss(prediction + torch.randn(prediction.shape, generator=generator), target)

    with pytest.raises(ConversionError, match=r"not a tensor with data[\s\S]*without generator="):
        step_of(MLP(), loss=noisy)
