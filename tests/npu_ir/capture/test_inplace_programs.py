"""Random programs of views and in-place ops: a graph computes what eager computes, or is refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from npu_ir import ConversionError, execute_ir, extract_ir
from tests.support.corpus.case import Function
from tests.support.corpus.comparison import assert_same
from tests.support.rows import each_row

NEW: list[Callable[[Tensor], Tensor]] = [
    lambda a: a * 2,
    lambda a: a.clone(),
    torch.zeros_like,
    lambda a: torch.cat([a, a]) if a.dim() else a + 1,
    lambda a: a.sum(),
]
# Each returns memory of its argument, or the argument itself, in eager mode.
VIEWS: list[Callable[[Tensor], Tensor]] = [
    lambda a: a.reshape(-1),
    lambda a: a.transpose(0, -1) if a.dim() else a,
    lambda a: a[0] if a.dim() and len(a) else a.unsqueeze(0),
    lambda a: a[1:] if a.dim() and len(a) > 1 else a.detach(),
    lambda a: a.unsqueeze(-1),
    lambda a: a.contiguous(),
    lambda a: a.to(torch.float32),
    lambda a: F.dropout(a, 0.0, training=True),
    lambda a: F.dropout(a, 0.5, training=False),
    lambda a: a.split(1)[-1] if a.dim() and len(a) else a,
    lambda a: a.unbind(0)[-1] if a.dim() and len(a) else a,
    lambda a: a.diagonal() if a.dim() > 1 else a,
    lambda a: torch.broadcast_tensors(a, torch.zeros(()))[0],
    lambda a: torch.einsum("i->i", a) if a.dim() == 1 else a,
    lambda a: a.view(torch.int32).view(torch.float32),
]
WRITES: list[Callable[[Tensor, Tensor], Any]] = [
    lambda a, b: a.add_(1),
    lambda a, b: a.relu_(),
    lambda a, b: a.zero_(),
    lambda a, b: a.copy_(b) if a.shape == b.shape else a.mul_(3),
    lambda a, b: a.add_(b) if a.shape == b.shape else a.sub_(1),
    lambda a, b: a.add_(a),
    lambda a, b: a.masked_fill_(a > 1, 7.0),
    lambda a, b: a.__setitem__(0, 5.0) if a.dim() and len(a) else a.neg_(),
    lambda a, b: F.relu(a, inplace=True),
    lambda a, b: torch.add(a, 1, out=a),
    lambda a, b: torch._foreach_add_([a], 1.0),
    lambda a, b: F.dropout(a, 0.0, training=True, inplace=True),
]


@dataclass(frozen=True)
class Step:
    """One line of a program: what it does, and to which of the tensors made so far."""

    table: str
    number: int
    target: int
    other: int
    is_in_region: bool


class Program(nn.Module):
    """Runs the steps on two tensors, and returns some of those it made."""

    def __init__(self, steps: Sequence[Step], results: Sequence[int], changes_inputs: bool) -> None:
        super().__init__()
        self.steps, self.results, self.changes_inputs = steps, results, changes_inputs

    def forward(self, x: Tensor, y: Tensor) -> Any:
        made = [x, y] if self.changes_inputs else [x * 1, y + 0]
        for step in self.steps:
            target, other = made[step.target % len(made)], made[step.other % len(made)]
            with torch.set_grad_enabled(not step.is_in_region):
                if step.table == "write":
                    WRITES[step.number % len(WRITES)](target, other)
                else:
                    table = NEW if step.table == "new" else VIEWS
                    made.append(table[step.number % len(table)](target))
        return tuple(made[number % len(made)] for number in self.results)


numbers = st.integers(0, 59)
steps = st.builds(
    Step,
    st.sampled_from(["new", "view", "view", "write", "write"]),
    numbers,
    numbers,
    numbers,
    st.sampled_from([True, False, False]),
)


def inputs() -> tuple[Tensor, Tensor]:
    return torch.arange(6.0).view(2, 3) - 2, torch.arange(6.0).view(2, 3) / 2


def check(program: nn.Module, make_inputs: Callable[[], tuple[Tensor, ...]] = inputs) -> None:
    """Fail unless the graph of ``program`` gives the results of eager, and changes the same inputs."""
    given = make_inputs()
    with torch.no_grad():
        expected = program(*given)
    graph = extract_ir(program, make_inputs())
    actual, mutations = execute_ir(graph, make_inputs(), return_mutations=True)
    assert_same(actual, expected, "the result")
    for value, before, after in zip(graph.inputs, make_inputs(), given, strict=True):
        assert value.argument is not None
        assert_same(mutations.get(value.argument.target, before), after, f"input {value.name}")


def is_refused_by_eager(program: nn.Module) -> bool:
    """Whether it writes to a tensor what it reads from another part of the same memory."""
    try:
        with torch.no_grad():
            program(*inputs())
    except RuntimeError as error:
        assert "refer to a single memory location" in str(error)
        return True
    return False


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(steps, min_size=3, max_size=9), st.lists(numbers, min_size=1, max_size=3), st.booleans())
def test_a_random_program_computes_what_eager_computes(
    steps: list[Step], results: list[int], changes_inputs: bool
) -> None:
    program = Program(steps, results, changes_inputs)
    assume(not is_refused_by_eager(program))
    try:
        check(program)
    except ConversionError as error:
        assert "PyTorch cannot make the program functional" in error.message


# What such programs have found


def test_eager_refuses_to_add_the_transpose_of_a_tensor_to_it_in_place() -> None:
    square = [Step("new", 3, 0, 0, False), Step("view", 3, 2, 0, False)]
    program = Program([*square, Step("view", 1, 3, 0, False), Step("write", 4, 3, 4, False)], [3], False)

    assert is_refused_by_eager(program)


@pytest.mark.parametrize("dropout", [F.dropout, F.alpha_dropout, F.dropout1d, F.feature_alpha_dropout])
@pytest.mark.parametrize(("p", "training"), [(0.0, True), (0.0, False), (0.5, False), (1.0, True)])
def test_a_dropout_that_drops_nothing_returns_its_input_itself(
    dropout: Any, p: float, training: bool
) -> None:
    def program(x: Tensor) -> Any:
        x = x * 2
        y = dropout(x, p, training)
        y.add_(1)
        return x, y

    check(Function(program), lambda: (torch.arange(24.0).view(2, 3, 4),))


def test_a_dropout_of_a_view_returns_the_view_itself() -> None:
    def program(x: Tensor) -> Any:
        x = x * 2
        y = F.dropout(x.t()[1:], 0.5, training=False)
        x.add_(1)
        return x, y

    check(Function(program), lambda: (torch.arange(6.0).view(2, 3),))


def test_a_write_in_a_region_without_gradients_is_seen_outside() -> None:
    def program(x: Tensor) -> Any:
        x = x * 2
        y = F.dropout(x.t(), 0.5, training=False)
        with torch.no_grad():
            x.index_fill_(0, torch.tensor([0]), 4.0)
        return y

    check(Function(program), lambda: (torch.arange(6.0).view(2, 3),))


@pytest.mark.parametrize("is_from_outside", [True, False])
@pytest.mark.parametrize(
    "view",
    [
        pytest.param(lambda x: x.t(), id="view"),
        pytest.param(lambda x: x, id="itself"),
        pytest.param(lambda x: x.split(1)[1], id="list"),
        pytest.param(lambda x: torch.broadcast_tensors(x, torch.zeros(()))[0], id="broadcast_tensors"),
        pytest.param(lambda x: torch.einsum("ij->ij", x), id="einsum"),
        pytest.param(lambda x: F.dropout(x, 0.5, training=False), id="dropout"),
    ],
)
def test_a_view_taken_in_a_region_without_gradients_stays_a_view(
    view: Callable[[Tensor], Tensor], is_from_outside: bool
) -> None:
    def program(x: Tensor) -> Any:
        x = x if is_from_outside else x * 2
        with torch.no_grad():
            seen = view(x)
        seen.add_(1)
        return x, seen

    check(Function(program), lambda: (torch.arange(6.0).view(2, 3),))


@pytest.mark.filterwarnings("ignore:Use of masked_fill_ on expanded tensors")
@each_row(
    "write",
    {
        "zero": lambda e: e.zero_(),
        "fill": lambda e: e.fill_(2),
        "masked_fill": lambda e: e.masked_fill_(e > 1, 7.0),
        "through_a_view": lambda e: e[:, 1].fill_(3),
    },
)
def test_a_write_to_an_expanded_tensor_is_refused(write: Callable[[Tensor], Any]) -> None:
    def program(x: Tensor) -> Any:
        x = x * 1
        write(x.expand(2, 3))
        return x

    with pytest.raises(
        ConversionError,
        match=r"aten.\w+_.\w+ changes an expanded tensor in place[\s\S]*fix: clone\(\) the tensor",
    ):
        extract_ir(Function(program), (torch.arange(3.0),))


def test_one_element_of_an_expanded_tensor_can_be_written() -> None:
    def program(x: Tensor) -> Any:
        x = x * 1
        x.expand(2, 3)[0, 1] = 5
        return x

    check(Function(program), lambda: (torch.arange(3.0),))


class Named(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("x", torch.ones(2))

    def forward(self, x: Tensor) -> Any:
        x.add_(1)
        self.x.add_(x)
        return x + self.x


def test_an_input_and_a_buffer_of_one_name_are_changed_apart() -> None:
    model = Named()
    graph = extract_ir(model, (torch.ones(2),))

    _, mutations = execute_ir(graph, (torch.zeros(2),), weights=model.state_dict(), return_mutations=True)

    expected = {"x": torch.full((2,), 2.0), "x#1": torch.ones(2)}
    assert_same(dict(sorted(mutations.items())), expected, "the mutations")
