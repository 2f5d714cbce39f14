"""Digests of Python objects: what is the same has the same, what has no certain content is refused."""

from __future__ import annotations

import abc
import argparse
import builtins
import collections
import copy
import dataclasses
import enum
import functools
import itertools
import logging
import operator
import os
import random
import threading
import time
import weakref
from types import SimpleNamespace
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy
import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

from npu_runtime.training.cache.content_hash import ContentHash, UnknownContentError

COUNTER = 0
LOGGER = logging.getLogger("test")
GENERATOR = torch.Generator()


def digest(item: Any) -> str:
    content = ContentHash()
    content.add(item)
    return content.digest()


class Point(NamedTuple):
    x: float


class Level(enum.IntEnum):
    LOW = 1


class Slotted:
    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __call__(self) -> Any:
        return self.value


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


class WithUnusedFile:
    def __init__(self, value: Any) -> None:
        self.value, self.file = value, open(os.devnull)  # noqa: SIM115

    def __call__(self) -> Any:
        return self.value


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


@functools.lru_cache
def memoized(x: int) -> int:
    return x


class Tagged(torch.Tensor):
    pass


class Sized(Protocol):
    size: int


def counting(x: Any) -> Any:
    global COUNTER  # noqa: PLW0603
    COUNTER += 1
    return x


def importing(x: Any) -> Any:
    import json

    return json.dumps(x)


class WithRegistered(abc.ABC):  # noqa: B024
    pass


class Registered:
    pass


WithRegistered.register(Registered)

REFUSED = {
    "the environment": (lambda x: x if os.environ.get("FLAG") else -x, "os may read the environment"),
    "a function of os": (os.getenv, "os.getenv may read the environment"),
    "random numbers of Python": (lambda x: x * random.random(), "random may read"),
    "a clock": (time.perf_counter, "time.perf_counter is implemented in C"),
    "a file": (lambda x: open(x), r"calls open\(\)"),  # noqa: SIM115
    "evaluated text": (lambda x: eval(x), r"calls eval\(\)"),  # noqa: S307
    "hashes of strings": (lambda x: hash(x), r"calls hash\(\)"),
    "addresses": (lambda x: id(x), r"calls id\(\)"),
    "globals by name": (lambda x: globals()[x], r"calls globals\(\)"),
    "a global that is written": (counting, "writes the global 'COUNTER'"),
    "an import": (importing, "imports json when it runs"),
    "a logger": (lambda x: LOGGER.info(x), "logging.* standard library|may read"),
    "a generator": (lambda x: torch.rand(2, generator=GENERATOR), "torch._C.Generator is not described"),
    "the seed of PyTorch": (lambda x: x + torch.initial_seed(), "initial_seed reads state"),
    "the seed, behind a name": (lambda x, m=torch: x + m.initial_seed(), "initial_seed reads state"),
    "a file of tensors": (lambda x: torch.load(x), "torch.serialization.load does not compute"),
    "processes": (lambda x: torch.distributed.get_rank(), "torch.distributed.* does not compute"),
    "other ops": (lambda x: torch.ops.mine.op(x), "torch.ops.mine may be anyone's"),
    "ops as a whole": (lambda x, ops=torch.ops: ops.mine.op(x), "may be anyone's"),
    "a subclass of tensors": (torch.ones(2).as_subclass(Tagged), "of the class Tagged"),
    "a sparse tensor": (torch.ones(2).to_sparse(), "layout torch.sparse_coo"),
    "an iterator": (itertools.count(), "itertools.count is not described by its attributes"),
    "a lock": (threading.Lock(), "lock is not described"),
    "a weak reference": (weakref.ref(nn.Linear), "weakref"),
    "a set of objects": ({Slotted}, "the order of a set"),
    "a set of strings": ({"x", "y"}, "the order of the set .* use a tuple or a dict"),
    "a constant set that is iterated": (lambda x: [x, *{"a", "b", "c"}], "the order of the set"),
    "an exception": (ValueError(2.0), "an exception of the class ValueError is not described"),
    "a matrix": (numpy.array([1.0]).view(numpy.matrix), "numpy.matrix is not described"),
    "a class with registered ones": (WithRegistered, "Registered is registered as a subclass of WithReg"),
    "eval by another name": (lambda x, call=eval: call(x), r"calls eval\(\)"),
    "eval of a module": (lambda x: builtins.eval(x), r"calls eval\(\)"),  # noqa: S307
    "builtins that are passed on": (lambda x, b=builtins: b.eval(x), "any builtin may be meant"),
    "globals in a partial": (functools.partial(globals), r"calls globals\(\)"),
    "a protocol": (Sized, "the protocol Sized"),
    "code that reads code": (lambda x: memoized.__code__, "reads __code__"),
    "code that reads annotations": (lambda x: memoized.__annotations__, "reads __annotations__"),
    "a function in C": (numpy.add.reduce, "implemented in C|not described"),
    "another optimizer": (torch.optim.SGD([torch.ones(1)], lr=0.1), "an optimizer that the step does not"),
    "a scripted function": (torch.jit.script(nn.ReLU()), "torch.jit|in C|not described|implemented"),
}


@pytest.mark.parametrize("case", [pytest.param(item, id=name) for name, item in REFUSED.items()])
def test_content_that_is_not_certain_is_refused(case):
    item, message = case

    with pytest.raises(UnknownContentError, match=message):
        digest(item)


def test_results_that_were_computed_before_are_refused():
    digest(memoized)
    memoized(1)

    with pytest.raises(UnknownContentError, match="returns results that were computed before"):
        digest(memoized)
    memoized.cache_clear()


def test_a_method_is_read_where_its_name_is_used():
    class Reader:
        def read(self) -> Any:
            return open(os.devnull)

        def __call__(self) -> Any:
            return self.read()

    with pytest.raises(UnknownContentError, match=r"calls open\(\)"):
        digest(Reader())


def test_all_attributes_are_read_where_names_are_computed():
    class Reader:
        def read(self) -> Any:
            return open(os.devnull)

        def __call__(self, name: str) -> Any:
            return getattr(self, "re" + name)()

    with pytest.raises(UnknownContentError, match=r"calls open\(\)"):
        digest(Reader())


FETCH, GETTER, COPY, FORMAT = getattr, operator.attrgetter, copy.copy, "{0.re" + "ad}"
DYNAMIC = {
    "a global": lambda x: FETCH(x, "re" + "ad"),
    "a default": lambda x, get=getattr: get(x, "re" + "ad"),
    "a partial": functools.partial(getattr, WithUnusedFile),
    "attrgetter": lambda x: GETTER("re" + "ad")(x),
    "a module that is passed on": lambda x, o=operator: o.attrgetter("re" + "ad")(x),
    "a descriptor": lambda x, get=object.__getattribute__: get(x, "re" + "ad"),
    "vars": lambda x, get=vars: get(x),
    "copies": lambda x: COPY(x),
    "astuple": lambda x: dataclasses.astuple(x),
    "fields": lambda x: dataclasses.fields(x),
    "a text with a field": lambda x: f"{x.value} {x.file}",
    "a computed text": lambda x: FORMAT.format(x),
    "format": lambda x, text=str.format: text(FORMAT, x),
    "a format of a text": FORMAT.format,
}


@pytest.mark.parametrize("function", [pytest.param(item, id=name) for name, item in DYNAMIC.items()])
def test_all_attributes_are_read_where_code_can_reach_any(function):
    with pytest.raises(UnknownContentError, match=r"TextIOWrapper|calls open\(\)"):
        digest((WithUnusedFile(1), function))


def test_a_pattern_reads_attributes_by_position():
    class Positional:
        __match_args__ = ("value", "file")

        file: Any = None

    item = Positional()
    item.file = os.environ

    def read(x: Any) -> Any:
        match x:
            case Positional(_, found):
                return found

    with pytest.raises(UnknownContentError, match="os._Environ"):
        digest((item, read))


class Base:
    def __init_subclass__(cls) -> None:
        cls.opened = open(os.devnull)  # type: ignore[attr-defined] # noqa: SIM115


def make_class() -> type:
    class Made(Base):
        pass

    return Made


def test_code_of_class_statements_that_ran_does_not_count():
    first, second = digest(lambda x: Base), digest(lambda x: (type(x), Base))

    assert first != second


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(make_class, id="a class statement"),
        pytest.param(lambda: type("Made", (Base,), {}), id="a call of type"),
        pytest.param(lambda make=type: make("Made", (Base,), {}), id="type by another name"),
    ],
)
def test_code_of_class_statements_counts_where_they_run(function):
    with pytest.raises(UnknownContentError, match=r"calls open\(\)"):
        digest((Base, function))


def test_keys_of_a_mapping_are_read_without_their_name():
    class Mapped:
        def keys(self) -> Any:
            return open(os.devnull)

    with pytest.raises(UnknownContentError, match=r"calls open\(\)"):
        digest((Mapped(), lambda x: dict(**x)))


def test_text_of_another_module_is_not_code_of_pytorch():
    names = [{"SCALE": scale, "__name__": "torch.mine"} for scale in (2.0, 3.0)]
    for each in names:
        exec("def scaled(x): return x * SCALE", each)

    digests = [digest(each["scaled"]) for each in names]

    assert digests[0] != digests[1]


def test_what_is_too_deep_is_refused():
    item: list[Any] = []
    for _ in range(5000):
        item = [item]

    with pytest.raises(UnknownContentError, match="nested too deeply"):
        digest(item)


def test_the_error_says_how_it_is_reached():
    model = nn.Sequential(nn.Identity())
    model[0].forward = lambda x: open(x)  # noqa: SIM115

    with pytest.raises(UnknownContentError, match=r"test_content_hash.py:\d+"):
        digest(model)
