"""The Python state of a model: each trace starts from it, and capture and verification restore it."""

import functools
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

from npu_ir import Graph, execute_ir, extract_ir, verify_ir
from tests.support.corpus.case import Holding
from tests.support.rows import each_row


class Counter:
    def __init__(self) -> None:
        self.calls = 0

    def count(self) -> int:
        self.calls += 1
        return self.calls


class SlottedCounter:
    __slots__ = ("__calls",)

    def __init__(self) -> None:
        self.__calls = 0

    @property
    def calls(self) -> int:
        return self.__calls

    def count(self) -> int:
        self.__calls += 1
        return self.__calls


def count_in_list(calls: list[None]) -> int:
    calls.append(None)
    return len(calls)


def count_in_dict(calls: dict[str, int]) -> int:
    calls["calls"] = calls.get("calls", 0) + 1
    return calls["calls"]


def count_in_set(calls: set[int]) -> int:
    calls.add(len(calls))
    return len(calls)


class Strict(OrderedDict[str, int]):
    """Is made in its own way, and is not copied."""

    def __init__(self, *, made: bool) -> None:
        super().__init__()

    def copy(self) -> Any:
        raise NotImplementedError


COUNTERS = [
    pytest.param(Counter, Counter.count, id="object"),
    pytest.param(SlottedCounter, SlottedCounter.count, id="slots"),
    pytest.param(list, count_in_list, id="list"),
    pytest.param(lambda: deque(maxlen=4), count_in_list, id="deque"),
    pytest.param(dict, count_in_dict, id="dict"),
    pytest.param(lambda: Strict(made=True), count_in_dict, id="dict of its own kind"),
    pytest.param(set, count_in_set, id="set"),
    pytest.param(lambda: [({"inner": Counter()},)], lambda held: held[0][0]["inner"].count(), id="nested"),
]


def check(model: nn.Module, *args: Tensor) -> Graph:
    graph = extract_ir(model, args)
    assert verify_ir(graph, model, args).ok
    assert verify_ir(graph, model, args).ok
    return graph


@each_row(("hold", "count"), COUNTERS)
def test_the_graph_is_that_of_the_next_call(hold: Callable[[], Any], count: Callable[[Any], int]) -> None:
    # The sum is held by a dict: the model is traced twice, then with the sum as a buffer.
    model = Holding(
        lambda self, x: x + self.cache["sum"].add_(count(self.held)),
        held=hold(),
        cache={"sum": torch.zeros(2)},
    )
    count(model.held)

    graph = check(model, torch.zeros(2))

    assert torch.equal(execute_ir(graph, (torch.zeros(2),)), torch.full((2,), 2.0))
    assert count(model.held) == 2


def test_an_attempt_that_torch_export_gives_up_counts_for_nothing() -> None:
    def sized(self: Any, x: Tensor) -> Tensor:
        number = self.held.count()
        return x * number if x.shape[0] == 1 else x + number

    model, x = Holding(sized, held=Counter()), torch.zeros(3)

    graph = extract_ir(model, (x,), dynamic_shapes={"args": ({0: Dim("n", min=1)},)})

    assert torch.equal(execute_ir(graph, (x,)), torch.ones(3))
    assert model.held.calls == 0


def test_a_dict_keeps_its_order() -> None:
    def forward(self: Any, x: Tensor) -> Tensor:
        self.recent["first"] = self.recent.pop("first") + 1
        return x * self.recent["first"]

    model = Holding(forward, recent={"first": 1, "second": 2})

    extract_ir(model, (torch.ones(1),))

    assert list(model.recent.items()) == [("first", 1), ("second", 2)]


def test_verifying_leaves_attributes_as_they_were() -> None:
    class Numbered(nn.Module):
        calls = 0

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            return x * self.calls

    model = Numbered()

    check(model, torch.ones(1))

    assert "calls" not in vars(model)


@each_row("hold", {
    "partial": lambda keys: functools.partial(Tensor.add_, keys),
    "closure": lambda keys: lambda x: keys.add_(x),
})  # fmt: skip
def test_what_a_function_holds_of_the_model_stays_as_it_was(hold: Callable[[Tensor], Any]) -> None:
    keys = torch.zeros(2)
    model = Holding(lambda self, x: self.add(x), keys=keys, add=hold(keys))

    check(model, torch.ones(2))

    assert torch.equal(keys, torch.zeros(2))
