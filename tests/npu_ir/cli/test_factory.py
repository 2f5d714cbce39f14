"""Models from ``MODULE:FACTORY``, and its errors."""

import json
import sys
from collections.abc import Callable

import pytest
import torch

from npu_ir.cli.factory import make, make_model, parse_reference
from npu_ir.errors import FactoryError, UsageError
from tests.support.rows import each_row

MODULE = """
import sibling_of_zoo
import torch

class Net(torch.nn.Linear):
    def __init__(self):
        super().__init__(2, 2)

    @staticmethod
    def make():
        return Net()

def make():
    return Net()

net = Net()
number = 3

def raises():
    raise ValueError("no such config\\nmore about it")

def exits():
    raise SystemExit("bye")

def fails_inside_torch():
    return torch.nn.Linear(-1, 2)

def returns_a_number():
    return 3

def returns_nothing():
    Net()

def sized(size, *, bias=True):
    return torch.nn.Linear(size, 1, bias=bias)

class Meta(type):
    def __getattr__(cls, name):
        raise ImportError("needs something")

class Lazy(metaclass=Meta):
    pass
"""


FILES = {
    "zoo.py": MODULE,
    "sibling_of_zoo.py": "",
    "needy.py": "import not_there_at_all",
    "bad_syntax.py": "def :",
    "json.py": "import torch\nmake = torch.nn.ReLU\n",
}


@each_row("reference", ["zoo:make", "zoo:Net", "zoo:Net.make", "zoo:net", "zoo.py:make", "./zoo.py:net"])
def test_a_model_is_made_in_eval_mode(reference: str) -> None:
    model = make_model(reference)

    assert type(model).__name__ == "Net"
    assert not model.training


def test_a_model_is_made_in_train_mode_or_on_meta_if_asked() -> None:
    assert make_model("zoo:make", train=True).training
    assert all(parameter.is_meta for parameter in make("zoo:make", meta=True)[0].parameters())
    with pytest.raises(
        UsageError, match="zoo:net is a model already, with its weights\n  fix: --meta needs a"
    ):
        make("zoo:net", meta=True)


def test_a_file_takes_no_module_s_place_and_leaves_nothing_behind_if_it_fails() -> None:
    assert type(make_model("zoo.py:make")).__module__ == "zoo"
    assert isinstance(make_model("json.py:make"), torch.nn.ReLU)
    assert sys.modules["json"] is json
    with pytest.raises(FactoryError, match=r"needy\.py:make failed"):
        make_model("needy.py:make")
    assert "needy" not in sys.modules


@each_row("reference, size, bias", [
    ("zoo:sized(3)", 3, True),
    ("zoo.py:sized(size=2, bias=False)", 2, False),
    ("torch.nn:Linear(4, 1)", 4, True),
    ("zoo:sized( # a comment: with a colon\n 5)", 5, True),
])  # fmt: skip
def test_a_factory_takes_python_literals(reference: str, size: int, bias: bool) -> None:
    model = make_model(reference)

    assert isinstance(model, torch.nn.Linear)
    assert (model.in_features, model.bias is not None) == (size, bias)


def test_a_reference_holds_any_literal() -> None:
    found = parse_reference("a:b.c('x:y(', -1.5, [True, None], key={'d': (1,)})")

    assert (found.module, found.path) == ("a", "b.c")
    assert found.args == ("x:y(", -1.5, [True, None])
    assert found.kwargs == {"key": {"d": (1,)}}


@each_row("reference, message", [
    ("zoo", "'zoo' does not name a model\n  fix: write MODULE:FACTORY"),
    ("zoo:", "'zoo:' does not name a model"),
    (":make", "':make' does not name a model"),
    ("no_zoo:make", "there is no module 'no_zoo'\n  at: no_zoo:make"),
    ("zoo.inner:make", "there is no module 'zoo.inner'"),
    ("no_zoo.py:make", "there is no file no_zoo.py"),
    ("zoo:missing", "zoo has no missing\n  fix: it has Net, make, net, raises, exits"),
    ("zoo:number", "zoo:number is int\n  fix: name a function or class that can be"),
    ("zoo:sized",
        r"cannot be called so: it takes \(size, \*, bias=True\), and gets no arguments: 'size' is missing"),
    ("zoo:sized(1, bais=False)",
        r"'bais': there is no 'bais' \(did you mean 'bias'[\s\S]*fix: give only what it takes: size, bias"),
    ("zoo:sized(1, 2)", "gets 2 by position: it takes 1 by position"),
    ("zoo:net.FORWARD", r"has no FORWARD \(did you mean 'forward'\?\)"),
    ("zoo:sized(1, size=2)", "'size' is given twice"),
    ("zoo:Net(1)", r"it takes \(\), and gets 1 by position"),
    ("zoo:sized(size)", "are not Python literals\n  fix: write numbers, quoted"),
    ("zoo:sized(1)(2)", "are not Python literals"),
    ("zoo:sized(1", "does not name a model"),
    ("zoo:sized(*[1])", "are not Python literals"),
    ("zoo:sized(**{'size': 1})", "are not Python literals"),
    ("zoo:Net.mak", r"zoo:Net has no mak \(did you mean 'make'\?\)"),
    ("zoo:net(1)", "zoo:net.1. is a model already.*\n  fix: arguments need a function"),
])  # fmt: skip
def test_a_reference_that_names_nothing_or_does_not_fit_is_wrong_usage(reference: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make_model(reference)


@each_row("reference, message", [
    ("zoo:raises", r"zoo:raises failed: ValueError: no such config\n  at: .*zoo.py:20\n  fix: this is"),
    ("zoo:exits", r"exits ends the program: sys.exit\('bye'\)\n  at: .*zoo.py:23\n  fix: return the model"),
    ("zoo:fails_inside_torch", r"failed: RuntimeError: .*\n  at: .*zoo.py:26\n"),
    ("zoo:returns_a_number", r"returns int\n  at: .*zoo.py:28\n  fix: it must return a torch.nn.Module"),
    ("needy:make",
        r"failed: ModuleNotFoundError: .*'not_there_at_all'\n.*\n  fix: install it for the Python that"),
    ("needy.py:make", r"failed: ModuleNotFoundError: .*\n  at: .*needy.py:1\n"),
    ("bad_syntax.py:make", r"make failed: SyntaxError: .*\n  at: .*bad_syntax.py:1\n"),
    ("zoo:returns_nothing", "returns None\n"),
    ("zoo:Lazy.part", r"zoo:Lazy.part failed: ImportError: .*\n  at: .*zoo.py:\d+\n"),
])  # fmt: skip
def test_what_the_code_of_the_user_raises_is_reported_by_its_name(reference: str, message: str) -> None:
    with pytest.raises(FactoryError, match=message):
        make_model(reference)


def test_the_traceback_is_shown_on_demand_only(npu: Callable[..., str]) -> None:
    quiet, debug = npu("extract zoo:raises", code=1), npu("extract zoo:raises --debug", code=1)

    assert quiet.startswith("npu: error: ")
    assert (quiet.count("Traceback"), debug.count("Traceback")) == (0, 2)
    assert 'raise ValueError("no such config' in debug
