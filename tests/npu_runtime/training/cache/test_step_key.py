"""Keys of steps: whatever a step depends on is in its key."""

from __future__ import annotations

import builtins
import functools
import math
import operator
import sys
from dataclasses import dataclass

import pytest
import torch
from torch import nn
from torch._subclasses import FakeTensorMode
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from npu_runtime.training.cache.content_hash import UnknownContentError
from npu_runtime.training.cache.step_key import make_environment_key
from tests.npu_runtime.training.cache.user_source import key_of, load_source, step_key_of


@pytest.fixture(autouse=True)
def _forget_source():
    yield
    for name in ("user_source_under_test", "user_other"):
        sys.modules.pop(name, None)


@pytest.mark.smoke
def test_same_source_has_the_same_key(tmp_path):
    first = key_of(*load_source(tmp_path).make())

    second = key_of(*load_source(tmp_path).make())

    assert first == second


@pytest.fixture(scope="module")
def unedited(tmp_path_factory):
    """Return a folder, and the key of a step of the file in it."""
    folder = tmp_path_factory.mktemp("source")
    key = step_key_of(*load_source(folder).make())
    yield folder, key
    assert step_key_of(*load_source(folder).make()) == key, "the key is another without any edit"


EDITS = {
    "a helper function": ("return x * 1.5", "return x * 1.6"),
    "a global number": ("SCALE = 2.0", "SCALE = 2.5"),
    "a global dict": ('"shift": 1.0', '"shift": 1.5'),
    "the content of a global tensor": ("torch.tensor([1.0, 2.0])", "torch.tensor([1.0, 3.0])"),
    "the value of an enum": ("FIRST = 1", "FIRST = 2"),
    "a field of a dataclass": ("ratio: float = 0.5", "ratio: float = 0.6"),
    "a free variable of a decorator": ("factor = 3.0", "factor = 3.5"),
    "a class attribute of a base": ("offset = 0.25", "offset = 0.5"),
    "a method of a base": ("return x + 4.0", "return x + 5.0"),
    "the call of an object": ("F.leaky_relu(x, self.slope)", "F.leaky_relu(-x, self.slope)"),
    "an attribute of an object": ("Activation(0.1)", "Activation(0.2)"),
    "the rate of a dropout": ("nn.Dropout(0.5)", "nn.Dropout(0.6)"),
    "an argument of a partial": ("exponent=2", "exponent=3"),
    "a number of a module": ("self.eps = 1e-3", "self.eps = 1e-4"),
    "the content of a buffer that is not saved": ("torch.ones(4), persistent", "torch.zeros(4), persistent"),
    "a property": ("return 1.25", "return 1.375"),
    "a default argument": ("by=0.75", "by=0.875"),
    "a decorated method": ("return x * 1.125", "return x * 1.25"),
    "a global of another file": ("LIMIT = 7.0", "LIMIT = 8.0"),
    "a function of another file": ("return x * LIMIT", "return x + LIMIT"),
    "the reduction of a loss": ('reduction="mean"', 'reduction="sum"'),
    "the class of the optimizer": ("torch.optim.AdamW", "torch.optim.Adam"),
    "a switch of the optimizer": ("lr=1e-3)", "lr=1e-3, amsgrad=True)"),
    "weight decay that is off": ("lr=1e-3)", "lr=1e-3, weight_decay=0.0)"),
    "the number of parts": ("dict()", "dict(accumulate=3)"),
    "the clipping of gradients": ("dict()", "dict(clip_grad_norm=1.0)"),
    "autocast": ("dict()", "dict(autocast=torch.bfloat16)"),
    "the shape of a batch": ("(torch.ones(3, 4)), t", "(torch.ones(1, 4)), t"),
    "the strides of a batch": ("(torch.ones(3, 4)), t", "(torch.ones(4, 3).t()), t"),
    "a property of a batch": ("self.x * 1.75", "self.x * 1.875"),
    "the dtype of a layer": ("self.fc = nn.Linear(4, 4)", "self.fc = nn.Linear(4, 4).double()"),
    "a tied parameter": ("self.drop = nn", "self.tied = self.fc; self.drop = nn"),
    "a frozen parameter": ("model = Net()", "model = Net(); model.fc.bias.requires_grad_(False)"),
    "evaluation": ("model = Net()", "model = Net().eval()"),
    "a hook": ("model = Net()", "model = Net(); model.fc.register_forward_hook(lambda *a: a[2] * 2)"),
    "a method of an instance": ("model = Net()", "model = Net(); model.inherited = lambda x: x"),
    "a method that was exchanged": ("model = Net()", "model = Net(); Net.inherited = lambda self, x: x"),
    "a layer of another class": ("nn.Dropout(0.5)", "nn.AlphaDropout(0.5)"),
    "a parameter group": ("model.parameters(), lr", "[{'params': [p]} for p in model.parameters()], lr"),
}


@pytest.mark.parametrize("edit", [pytest.param(item, id=name) for name, item in EDITS.items()])
def test_edited_source_has_another_key(unedited, edit):
    folder, before = unedited

    after = step_key_of(*load_source(folder, *edit).make())

    assert after != before


def test_an_edit_that_moves_lines_has_another_key(unedited):
    # Nodes of a graph name the lines that they come from.
    folder, before = unedited

    after = step_key_of(*load_source(folder, "SCALE = 2.0", "\nSCALE = 2.0").make())

    assert after != before


def test_learning_rates_are_not_in_a_key(unedited):
    folder, before = unedited

    after = step_key_of(*load_source(folder, "lr=1e-3", "lr=1e-4").make())

    assert after == before


def _key() -> str:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Dropout(0.5))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return key_of(model, optimizer, F.mse_loss, (torch.ones(1, 2), torch.ones(1, 2)))


@pytest.fixture(scope="module")
def usual_key():
    """Return the key as PyTorch and its settings are; each test leaves them so."""
    key = _key()
    yield key
    assert _key() == key, "a test has left something changed"


@dataclass
class Config:
    number: int

    def apply(self, x):
        return x * self.number


PATCHES = {
    "a function of torch": (F, "relu", lambda x, inplace=False: x.relu()),
    "a function of torch exchanged for another": (F, "relu", F.gelu),
    "a method of a layer": (nn.Linear, "forward", lambda self, x: x @ self.weight.t()),
    "a method of tensors": (torch.Tensor, "softmax", lambda self, dim: self),
    "a constant of a class": (nn.Dropout, "p", 0.25),
    "a method of an optimizer": (torch.optim.SGD, "step", lambda self: None),
    "a partial for a function": (F, "gelu", functools.partial(F.gelu, approximate="tanh")),
    "a bound method for a function": (F, "gelu", Config(1).apply),
    "a partial method": (nn.Linear, "forward", functools.partialmethod(lambda self, x: x)),
    "a wrapped function of another": (F, "gelu", torch.no_grad()(lambda x: x)),
    "a wrapped method of another": (nn.GELU, "forward", torch.autocast("cpu", enabled=False)(lambda s, x: x)),
    "a function in a dict": (F, "table", {"a": [lambda x: x]}),
    "an object in a module that is not called": (torch.overrides, "config", Config(1)),
    "a number in math": (math, "pi", 3.0),
    "a function in math": (math, "sqrt", math.exp),
    "a function of Python": (math, "sqrt", lambda x: x),
    "a builtin": (builtins, "sum", lambda x: x),
    "a function of operator": (operator, "mul", operator.add),
    "a dict in a class": (nn.Linear, "table", {"a": 1}),
    "an object in a class": (nn.Linear, "config", Config(1)),
    "a builtin exchanged for another": (torch.linalg, "norm", torch.linalg.cond),
    "a class exchanged for one of its name": (nn, "ReLU", type("ReLU", (nn.GELU,), {})),
    "an exchanged class": (nn.modules.activation, "ReLU", nn.GELU),
}


@pytest.mark.parametrize("patch", [pytest.param(item, id=name) for name, item in PATCHES.items()])
def test_a_patch_of_pytorch_is_in_a_key(usual_key, monkeypatch, patch):
    owner, name, item = patch
    monkeypatch.setattr(owner, name, item, raising=False)

    after = _key()

    assert after != usual_key


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda k: functools.partial(torch.mul, other=k), id="a partial"),
        pytest.param(lambda k: Config(k).apply, id="a bound method"),
        pytest.param(lambda k: torch.no_grad()(lambda x: x * k), id="a wrapped function"),
        pytest.param(lambda k: functools.partialmethod(lambda x, y: x * y, k), id="a partial method"),
        pytest.param(lambda k: {"a": [k, torch.sin]}, id="a dict"),
        pytest.param(lambda k: Config(k), id="an object"),
    ],
)
def test_what_a_patch_of_pytorch_holds_is_in_a_key(monkeypatch, make):
    monkeypatch.setattr(F, "gelu", make(2.0))
    before = _key()
    monkeypatch.setattr(F, "gelu", make(3.0))

    assert _key() != before


def test_a_patch_of_this_project_is_in_a_key(usual_key, monkeypatch):
    from npu_passes.library.cleanup.cse import Cse

    monkeypatch.setattr(Cse, "run", lambda self, graph: False)

    assert _key() != usual_key


@pytest.mark.parametrize(
    ("change", "undo"),
    [
        pytest.param(
            lambda: torch.set_default_dtype(torch.float64),
            lambda: torch.set_default_dtype(torch.float32),
            id="default dtype",
        ),
        pytest.param(
            lambda: torch.use_deterministic_algorithms(True),
            lambda: torch.use_deterministic_algorithms(False),
            id="deterministic algorithms",
        ),
        pytest.param(
            lambda: torch.backends.mkldnn.set_flags(False),
            lambda: torch.backends.mkldnn.set_flags(True),
            id="oneDNN",
        ),
        pytest.param(
            lambda: torch.set_float32_matmul_precision("medium"),
            lambda: torch.set_float32_matmul_precision("highest"),
            id="precision of products",
        ),
        pytest.param(
            lambda: torch.autograd.set_detect_anomaly(True),
            lambda: torch.autograd.set_detect_anomaly(False),
            id="anomaly detection",
        ),
    ],
)
def test_global_settings_are_in_a_key(usual_key, change, undo):
    change()
    try:
        after = _key()
    finally:
        undo()

    assert after != usual_key


@pytest.mark.parametrize("name", ["NPU_CUDA_VECTOR_BYTES", "TORCH_ANY", "ATEN_CPU_CAPABILITY", "OMP_ANY"])
def test_variables_that_choose_kernels_are_in_a_key(usual_key, monkeypatch, name):
    monkeypatch.setenv(name, "1")

    assert _key() != usual_key


def test_the_sources_of_this_project_are_in_a_key(usual_key, monkeypatch):
    from npu_runtime.training.cache import environment

    monkeypatch.setattr(environment, "OWN_PACKAGES", environment.OWN_PACKAGES[1:])

    assert _key() != usual_key


class Mode(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        pytest.param(Mode, "a TorchFunctionMode", id="function mode"),
        pytest.param(FakeTensorMode, "TorchDispatchMode|FakeTensorMode", id="dispatch mode"),
        pytest.param(torch.autograd.graph.save_on_cpu, "a context of saved tensors", id="saved tensors"),
        pytest.param(lambda: torch.device("cpu"), "a TorchFunctionMode", id="default device"),
    ],
)
def test_modes_that_are_entered_have_no_key(make, message):
    with make(), pytest.raises(UnknownContentError, match=f"({message}).* takes part in calls of PyTorch"):
        make_environment_key()
