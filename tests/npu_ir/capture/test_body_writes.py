"""Writes in the bodies of control flow, and in programs of random writes."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor, nn, randn
from torch._higher_order_ops import scan, while_loop
from torch._higher_order_ops.map import map as map_rows
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from npu_ir import ConversionError, convert_exported_program, execute_ir, extract_ir
from npu_ir.capture.functionalize import functionalize
from tests.support.corpus.case import Function
from tests.support.corpus.comparison import assert_same
from tests.support.rows import each_row
from tests.support.tiers import examples, some, thin
from tests.support.writing_functions import (
    BODIES,
    nested,
    relu,
    write_beside_a_constant,
    write_through_dropout,
    zero_by_mask,
)

# Writes in the bodies of control flow, and around them.


def in_branch(body: Callable[[Tensor], Tensor], x: Tensor) -> Any:
    return torch.cond(x.sum() > -100, body, torch.clone, (x,))


def in_loop(body: Callable[[Tensor], Tensor], x: Tensor) -> Any:
    return while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, body(y)), (torch.tensor(0), x))[1]


def in_scan(body: Callable[[Tensor], Tensor], x: Tensor) -> Any:
    def step(carry: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
        result = body(carry + row)
        return result, result * 2

    return scan(step, torch.zeros(2, 3), torch.stack([x, x + 1]))


def in_map(body: Callable[[Tensor], Tensor], x: Tensor) -> Any:
    return map_rows(body, torch.stack([x, x - 1]))


def in_checkpoint(body: Callable[[Tensor], Tensor], x: Tensor) -> Any:
    return checkpoint(body, x, use_reentrant=False)


@each_row("body", some(BODIES, 4))
def test_what_a_branch_writes_stays_in_it(body: Callable[[Tensor], Tensor]) -> None:
    check(Function(lambda x, y: in_branch(body, x)))


NESTED_BODIES = list(
    itertools.product(
        [in_loop, in_scan, in_map, in_checkpoint],
        [relu, write_beside_a_constant, write_through_dropout, nested],
    )
)


@pytest.mark.parametrize(
    "pair", thin(NESTED_BODIES, 5, lambda pair: f"{pair[0].__name__}-{pair[1].__name__}")
)
def test_what_a_body_writes_stays_in_it(pair: tuple[Any, Callable[[Tensor], Tensor]]) -> None:
    around, body = pair
    check(Function(lambda x, y: around(body, x)))


@each_row("around", some([in_branch, in_loop, in_scan, in_map, in_checkpoint], 2))
def test_writes_around_control_flow_are_seen_where_they_belong(around: Any) -> None:
    def program(x: Tensor, y: Tensor) -> Any:
        z = x * 2
        view = z.view(-1)
        z.relu_()
        before = around(relu, z)
        view.add_(1)
        after = around(relu, z)
        z[0] = 3
        y.add_(z)
        return before, after, view

    check(Function(program))


def test_a_branch_with_local_writes_needs_no_second_trace() -> None:
    program = torch.export.export(
        Function(lambda x: in_branch(zero_by_mask, x)), (randn(2, 3),), strict=False
    )

    functional = functionalize(program)

    assert functional.program is program
    (found,) = functional.replacements.values()
    assert str(found.op) in ("aten.index_put.default", "aten.masked_fill.Scalar")  # the latter in torch 2.15


@torch.compiler.nested_compile_region
def compiled_relu(x: Tensor) -> Tensor:
    return (x * 2 - 1).relu_()


def test_a_region_that_two_calls_share_may_write() -> None:
    model, x = Function(lambda x: compiled_relu(compiled_relu(x).add_(1))), randn(2, 3)
    program = torch.export.export(model, (x,), strict=True)

    graph = convert_exported_program(program)

    assert torch.equal(execute_ir(graph, (x,)), model(x))


# Random programs of views and in-place ops: a graph computes what eager computes, or is refused.


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


@examples(8)
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


DROPOUTS = list(
    itertools.product(
        [(0.0, True), (0.0, False), (0.5, False), (1.0, True)],
        [F.dropout, F.alpha_dropout, F.dropout1d, F.feature_alpha_dropout],
    )
)


@pytest.mark.parametrize("pair", thin(DROPOUTS, 5))
def test_a_dropout_that_drops_nothing_returns_its_input_itself(pair: tuple[Any, Any]) -> None:
    (p, training), dropout = pair

    def program(x: Tensor) -> Any:
        x = x * 2
        y = dropout(x, p, training)
        y.add_(1)
        return x, y

    check(Function(program), lambda: (torch.arange(24.0).view(2, 3, 4),))


@pytest.mark.parametrize("is_from_outside", [True, False])
@pytest.mark.parametrize("view", [
    pytest.param(lambda x: x.t(), id="view"),
    pytest.param(lambda x: x, id="itself"),
    pytest.param(lambda x: x.split(1)[1], id="list"),
    pytest.param(lambda x: torch.broadcast_tensors(x, torch.zeros(()))[0], id="broadcast_tensors"),
    pytest.param(lambda x: torch.einsum("ij->ij", x), id="einsum"),
    pytest.param(lambda x: F.dropout(x, 0.5, training=False), id="dropout"),
])  # fmt: skip
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
@each_row("write", {
    "zero": lambda e: e.zero_(),
    "fill": lambda e: e.fill_(2),
    "masked_fill": lambda e: e.masked_fill_(e > 1, 7.0),
    "through_a_view": lambda e: e[:, 1].fill_(3),
})  # fmt: skip
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
