"""The Python state of a model: each trace starts from it, and capture and verification restore it."""

from __future__ import annotations

import functools
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

from npu_ir import execute_ir, extract_ir, verify_ir
from tests.support.rows import each_row


class Counter:
    """Counts its calls."""

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


class Counting(nn.Module):
    """Adds the call count to a tensor held by an object: it is traced twice, then as a buffer."""

    def __init__(self, hold: Callable[[], Any], count: Callable[[Any], int]) -> None:
        super().__init__()
        self.held, self.cache = hold(), {"sum": torch.zeros(2)}
        self.count = count

    def forward(self, x: Tensor) -> Tensor:
        self.cache["sum"].add_(self.count(self.held))
        return x + self.cache["sum"]


@each_row(("hold", "count"), COUNTERS)
def test_the_graph_is_that_of_the_next_call(hold: Callable[[], Any], count: Callable[[Any], int]) -> None:
    model, x = Counting(hold, count), torch.zeros(2)
    count(model.held)

    graph = extract_ir(model, (x,))

    assert torch.equal(execute_ir(graph, (x,)), torch.full((2,), 2.0))
    assert verify_ir(graph, model, (x,)).ok
    assert count(model.held) == 2


def test_an_attempt_that_torch_export_gives_up_counts_for_nothing() -> None:
    class Sized(Counting):
        def forward(self, x: Tensor) -> Tensor:
            number = self.count(self.held)
            return x * number if x.shape[0] == 1 else x + number

    model, x = Sized(Counter, Counter.count), torch.zeros(3)

    graph = extract_ir(model, (x,), dynamic_shapes={"x": {0: Dim("n", min=1)}})

    assert torch.equal(execute_ir(graph, (x,)), torch.ones(3))
    assert model.held.calls == 0


def test_a_dict_keeps_its_order() -> None:
    class Recent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.recent = {"first": 1, "second": 2}

        def forward(self, x: Tensor) -> Tensor:
            self.recent["first"] = self.recent.pop("first") + 1
            return x * self.recent["first"]

    model = Recent()

    extract_ir(model, (torch.ones(1),))

    assert list(model.recent.items()) == [("first", 1), ("second", 2)]


def test_verifying_leaves_attributes_as_they_were() -> None:
    class Numbered(nn.Module):
        calls = 0

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            return x * self.calls

    model, x = Numbered(), torch.ones(1)
    graph = extract_ir(model, (x,))

    assert verify_ir(graph, model, (x,)).ok
    assert verify_ir(graph, model, (x,)).ok
    assert "calls" not in vars(model)


def test_a_result_that_is_a_tensor_of_the_model_is_verified_as_it_is_after_the_call() -> None:
    class Returned(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("keys", torch.zeros(2))
            self.held = [self.keys]

        def forward(self, x: Tensor) -> Tensor:
            self.held[0].add_(x)
            result: Tensor = self.held[0]
            return result

    model, x = Returned(), torch.ones(2)

    assert verify_ir(extract_ir(model, (x,)), model, (x,)).ok
    assert torch.equal(model.keys, torch.zeros(2))


def added(keys: Tensor, x: Tensor) -> Tensor:
    return keys.add_(x)


@each_row(
    "hold",
    {
        "partial": lambda keys: functools.partial(added, keys),
        "closure": lambda keys: lambda x: added(keys, x),
    },
)
def test_what_a_function_holds_of_the_model_stays_as_it_was(hold: Callable[[Tensor], Any]) -> None:
    class Held(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("keys", torch.zeros(2))
            self.function = hold(self.keys)

        def forward(self, x: Tensor) -> Tensor:
            return self.function(x) * 2  # type: ignore[no-any-return]

    model, x = Held(), torch.ones(2)

    graph = extract_ir(model, (x,))

    assert verify_ir(graph, model, (x,)).ok
    assert torch.equal(model.keys, torch.zeros(2))
