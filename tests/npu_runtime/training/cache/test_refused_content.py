"""What content of a step is not certain: it is refused, with the reason and where it is."""

from __future__ import annotations

import abc
import builtins
import copy
import dataclasses
import functools
import itertools
import logging
import operator
import os
import random
import threading
import time
import weakref
from typing import Any, Protocol

import numpy
import pytest
import torch
from torch import nn

from npu_runtime.training.cache.content_hash import UnknownContentError
from tests.npu_runtime.training.cache.content_samples import Slotted, WithUnusedFile, digest

COUNTER = 0
LOGGER = logging.getLogger("test")
GENERATOR = torch.Generator()


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


def test_what_is_too_deep_is_refused():
    item: list[Any] = []
    for _ in range(5000):
        item = [item]

    with pytest.raises(UnknownContentError, match="nested too deeply"):
        digest(item)


def test_the_error_says_how_it_is_reached():
    model = nn.Sequential(nn.Identity())
    model[0].forward = lambda x: open(x)  # noqa: SIM115

    with pytest.raises(UnknownContentError, match=r"test_refused_content.py:\d+"):
        digest(model)
