"""Digests of Python objects: equal content has the same, any other content another one."""

from __future__ import annotations

import argparse
import collections
import enum
import functools
from types import SimpleNamespace
from typing import Any, Generic, NamedTuple, TypeVar

import numpy
import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

from npu_runtime.training.cache.content_hash import ContentHash
from tests.npu_runtime.training.cache.content_samples import Slotted, WithUnusedFile, digest


class Point(NamedTuple):
    x: float


class Level(enum.IntEnum):
    LOW = 1


class Named(dict[str, int]):
    pass


class PrivateSlot:
    __slots__ = ("__value",)

    def __init__(self, value: Any) -> None:
        self.__value = value

    def __call__(self) -> Any:
        return self.__value


class Reader:
    """Reads names that its objects may have."""

    flag, config, forward = False, None, None

    def __call__(self) -> Any:
        return self.forward if self.flag else self.config


def readers(index: int, name: str) -> list[Reader]:
    """Return readers, one of which has an attribute."""
    made = [Reader(), Reader(), Reader()]
    setattr(made[index], name, torch.sin)
    return made


def classes(index: int) -> list[type]:
    """Return classes of one name, one of which has an attribute."""

    class Same:
        def __call__(self) -> Any:
            return self.flag  # type: ignore[attr-defined]

    first = Same

    class Same:  # type: ignore[no-redef]
        def __call__(self) -> Any:
            return self.flag

    made = [first, Same]
    made[index].flag = True  # type: ignore[attr-defined]
    return made


def scaled_level(scale: float) -> enum.Enum:
    class Scaled(enum.Enum):
        LOW = 1

        def __init__(self, number: int) -> None:
            self.scale = number * scale

    return Scaled.LOW


def marked_level(mark: int) -> enum.Enum:
    class Marked(enum.Enum):
        LOW = 1

    Marked.LOW.mark = mark  # type: ignore[attr-defined]
    return Marked.LOW


def named(name: str, attribute: str) -> Any:
    def own(x: Any) -> Any:
        return x

    setattr(own, attribute, name)
    return own


class InOrder:
    """Goes through its attributes."""

    def __init__(self, *names: str) -> None:
        for name in names:
            setattr(self, name, 1.0)

    def __call__(self) -> Any:
        return [name for name in vars(self) if name != "other"]


def class_in_order(*names: str) -> Any:
    own = type("Own", (), dict.fromkeys(names, 1.0))
    return lambda: (own, vars(own))


T = TypeVar("T")


def generic_of(scale: float) -> Any:
    class Scale(Generic[T]):
        factor = scale

        def __call__(self, x: Any) -> Any:
            return x * self.factor

    return Scale[int]


class Counting(torch.optim.Optimizer):
    """Reads an attribute that schedulers of PyTorch set, too."""

    def __init__(self, count: int) -> None:
        super().__init__([torch.ones(1)], {"lr": 0.1})
        self._step_count, self._opt_called = count, count

    def step(self, closure: Any = None) -> Any:
        return self._step_count


PAIRS = {
    "numbers": (1, 2),
    "names of functions": (named("a", "__name__"), named("b", "__name__")),
    "qualified names of functions": (named("a", "__qualname__"), named("b", "__qualname__")),
    "modules of functions": (named("a", "__module__"), named("b", "__module__")),
    "the order of attributes": (InOrder("a", "b"), InOrder("b", "a")),
    "the order of attributes of a class": (class_in_order("a", "b"), class_in_order("b", "a")),
    "the class of a generic alias": (generic_of(2.0), generic_of(3.0)),
    "arguments of a generic alias": (list[Point], list[Slotted]),
    "a number and its bool": (1, True),
    "signs of zero": (0.0, -0.0),
    "a tuple and a list": ((1, 2), [1, 2]),
    "nesting": ([[1], 2], [[1, 2]]),
    "orders of a dict": ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    "the kind of a dict": ({}, collections.OrderedDict()),
    "dtypes": (torch.float32, torch.float64),
    "enums": (Level.LOW, 1),
    "named tuples": (Point(1.0), Point(2.0)),
    "slots": (Slotted(1), Slotted(2)),
    "items of a subclass of dict": (Named(a=1), Named(a=2)),
    "arrays": (numpy.ones(2), numpy.zeros(2)),
    "parsed arguments": (argparse.Namespace(scale=1), argparse.Namespace(scale=2)),
    "namespaces": (SimpleNamespace(scale=1), SimpleNamespace(scale=2)),
    "tensors": (torch.ones(2), torch.zeros(2)),
    "strides of a tensor": (torch.ones(2, 3), torch.ones(3, 2).t()),
    "gradients of a tensor": (torch.ones(2), torch.ones(2, requires_grad=True)),
    "one object twice, and two equal ones": ([SAME := [1], SAME], [[1], [1]]),
    "lambdas": (lambda x: x + 1, lambda x: x + 2),
    "partials": (functools.partial(max, 1), functools.partial(max, 2)),
    "bound methods": (Slotted(1).__call__, Slotted(2).__call__),
    "builtins": (torch.relu, torch.sigmoid),
    "methods of tensors": (torch.Tensor.relu, torch.Tensor.tanh),
    "private slots": (PrivateSlot(1), PrivateSlot(2)),
    "the object that has a flag": (readers(0, "flag"), readers(1, "flag")),
    "the object that has a method": (readers(1, "forward"), readers(2, "forward")),
    "the class that has a flag": (classes(0), classes(1)),
    "what a member of an enum is made with": (scaled_level(2.0), scaled_level(3.0)),
    "attributes of a member of an enum": (marked_level(2), marked_level(3)),
    "the order of a set of numbers": ({0, 8}, {8, 0}),
    "lengths of deques": (collections.deque([1], 2), collections.deque([1], 3)),
    "layers": (nn.Linear(2, 2), nn.Linear(2, 2, bias=False)),
    "modes of a layer": (nn.Dropout(), nn.Dropout().eval()),
    "ops": (torch.ops.aten.relu.default, torch.ops.aten.tanh.default),
}


@pytest.mark.smoke
@pytest.mark.parametrize("pair", [pytest.param(item, id=name) for name, item in PAIRS.items()])
def test_other_content_has_another_digest(pair):
    left, right = pair

    digests = digest(left), digest(right)

    assert digests[0] != digests[1]


def test_what_schedulers_keep_in_an_optimizer_counts_where_its_code_reads_it():
    digests = []
    for count in (2, 3):
        for name in ("_step_count", "_opt_called"):
            content = ContentHash()
            content.add_optimizer(Counting(count), frozenset({"param_groups", "state"}), frozenset({name}))
            digests.append(content.digest())
    optimizer = Counting(2)
    optimizer._opt_called = 3
    content = ContentHash()
    content.add_optimizer(optimizer, frozenset({"param_groups", "state"}), frozenset({"_opt_called"}))

    assert len(set(digests)) == 4
    assert content.digest() == digests[1], "no code reads it"


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: {"a": [1, (2.5, None)], "b": {1, 2}}, id="containers"),
        pytest.param(lambda: lambda x: x in {"z", "y", "x"}, id="constant sets that are searched"),
        pytest.param(lambda: argparse.Namespace(scale=1), id="parsed arguments"),
        pytest.param(lambda: SimpleNamespace(scale=1), id="namespaces"),
        pytest.param(lambda: Point, id="classes of named tuples"),
        pytest.param(lambda: Slotted(torch.ones(3)), id="instances"),
        pytest.param(lambda: nn.MultiheadAttention(4, 2), id="modules"),
        pytest.param(lambda: lambda x: torch.where(x > 0, x, -x), id="functions"),
        pytest.param(lambda: WithUnusedFile(1), id="attributes that no code reads"),
        pytest.param(lambda: parametrizations.weight_norm(nn.Linear(2, 2)), id="parametrizations"),
        pytest.param(lambda: torch.compiler.disable, id="functions of PyTorch"),
    ],
)
def test_equal_content_has_the_same_digest(make):
    with torch.random.fork_rng():
        first = (torch.manual_seed(0), make())[1]
        second = (torch.manual_seed(0), make())[1]

    assert digest(first) == digest(second)


def test_a_cycle_ends():
    item: list[Any] = []
    item.append(item)

    assert digest(item) == digest(item)


def test_text_of_another_module_is_not_code_of_pytorch():
    names = [{"SCALE": scale, "__name__": "torch.mine"} for scale in (2.0, 3.0)]
    for each in names:
        exec("def scaled(x): return x * SCALE", each)

    digests = [digest(each["scaled"]) for each in names]

    assert digests[0] != digests[1]
