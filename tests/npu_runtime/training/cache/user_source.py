"""A user's file with a model, its loss and its optimizer, of which tests edit one line."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from npu_runtime.training.cache.step_key import make_environment_key, make_step_key
from npu_runtime.training.options import StepOptions
from npu_runtime.training.trace import batch_arguments, make_step
from npu_runtime.training.tracing.substitution import ParameterSubstitution

SOURCE = """\
import enum, functools, dataclasses, math
import torch
from torch import nn
from torch.nn import functional as F
import user_other
from typing import NamedTuple

SCALE = 2.0
TABLE = {"shift": 1.0, "list": [1, 2]}
CONSTANT = torch.tensor([1.0, 2.0])

class Mode(enum.Enum):
    FIRST = 1

class Batch(NamedTuple):
    x: torch.Tensor
    @property
    def scaled(self):
        return self.x * 1.75

@dataclasses.dataclass
class Config:
    ratio: float = 0.5

config = Config()

def helper(x):
    return x * 1.5

def decorate(function):
    factor = 3.0
    @functools.wraps(function)
    def call(*args):
        return function(*args) * factor
    return call

class Base(nn.Module):
    offset = 0.25
    def inherited(self, x):
        return x + 4.0

class Activation:
    def __init__(self, slope):
        self.slope = slope
    def __call__(self, x):
        return F.leaky_relu(x, self.slope)

class Net(Base):
    names = ("fc",)
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.drop = nn.Dropout(0.5)
        self.act = Activation(0.1)
        self.power = functools.partial(torch.pow, exponent=2)
        self.eps = 1e-3
        self.register_buffer("mask", torch.ones(4), persistent=False)
    @property
    def gain(self):
        return 1.25
    @staticmethod
    def shifted(x, by=0.75):
        return x - by
    @decorate
    def wrapped(self, x):
        return x * 1.125
    def written_to_a_file(self):
        return open("/dev/null")
    def forward(self, x):
        x = x.scaled
        x = self.drop(self.act(self.fc(x))) * self.gain + self.offset
        x = self.shifted(self.inherited(helper(x))) * SCALE + TABLE["shift"] + self.eps
        x = self.power(x) + CONSTANT.sum() * config.ratio + Mode.FIRST.value
        return self.wrapped(x) * user_other.factor(self.mask)

def loss_fn(y, t):
    return F.mse_loss(y, t, reduction="mean")

def make():
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    options = dict()
    batch = (Batch(torch.ones(3, 4)), torch.ones(3, 4))
    return model, optimizer, loss_fn, batch, options
"""
OTHER = """\
LIMIT = 7.0

def factor(x):
    return x * LIMIT
"""


def load_source(folder: Path, *edit: str) -> ModuleType:
    """Return the user's file as a module, with one text of it replaced by another."""
    texts = {"user_source_under_test": SOURCE, "user_other": OTHER}
    if edit:
        assert sum(text.count(edit[0]) for text in texts.values()) == 1, edit
        texts = {name: text.replace(*edit) for name, text in texts.items()}
    for name in reversed(texts):
        path = folder / f"{name}.py"
        path.write_text(texts[name])
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        # Not by its loader, which would take a compiled file of the same second.
        exec(compile(texts[name], str(path), "exec"), vars(module))
    return module


def key_of(model, optimizer=None, loss_fn=None, batch=(), options=None):
    """Return the key of a step, the environment included."""
    return make_environment_key() + step_key_of(model, optimizer, loss_fn, batch, options)


def step_key_of(model, optimizer=None, loss_fn=None, batch=(), options=None):
    """Return the key of a step alone, which is quicker to make."""
    function, components = make_step(model, optimizer, loss_fn, StepOptions(**(options or {})))
    state = ParameterSubstitution(components).state
    return make_step_key(function, components, state, batch_arguments(batch), {})
