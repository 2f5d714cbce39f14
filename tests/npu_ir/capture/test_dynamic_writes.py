"""Programs with symbolic sizes that write in place equal eager at sizes that were not captured."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, arange, nn, randn, tensor
from torch.export import Dim

from npu_ir import ConversionError, execute_ir, extract_ir
from npu_ir._torch.sizes import are_sizes_equal, is_statically_true
from npu_ir.capture.functionalize import functionalize
from tests.support.corpus.case import Function, Holding
from tests.support.corpus.comparison import assert_same
from tests.support.rows import each_row
from tests.support.tiers import some
from tests.support.writing_functions import BODIES


def copies(args: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(arg.clone() if isinstance(arg, Tensor) else arg for arg in args)


def stateful(function: Callable[..., Any]) -> nn.Module:
    """Return a module with a cache, a counter and running statistics, which calls a function with itself."""
    return Holding(function, norm=nn.BatchNorm1d(3), cache=torch.zeros(1, 16, 4), count=torch.zeros(()))


def check(function: Callable[..., Any], shapes: Any, *calls: tuple[Any, ...]) -> None:
    """Fail unless the graph of the first call gives results and updates of eager for every call."""
    graph = extract_ir(stateful(function), copies(calls[0]), dynamic_shapes={"args": shapes})
    for args in calls:
        model, given = stateful(function), copies(args)
        weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        actual, changes = execute_ir(graph, copies(args), weights=weights, return_mutations=True)
        with torch.no_grad():
            expected = model(*given)
        torch.testing.assert_close(actual, expected, equal_nan=True)
        for name, after in model.state_dict().items():
            assert_same(changes.get(name, weights[name]), after, name)
        for value, before, after in zip(graph.inputs, copies(args), given, strict=True):
            assert_same(changes.get(value.name, before), after, value.name)


def change_input(_: Any, x: Tensor) -> Tensor:
    x.add_(1)
    x[:, 0] = 3
    return x * 2


def count(model: Any, x: Tensor) -> Tensor:
    model.count.add_(x.shape[0])
    return x + model.count


def through_broadcasting(_: Any, x: Tensor) -> Tensor:
    y = x * 2
    torch.broadcast_tensors(y[1:], torch.zeros(()))[0].add_(1)
    return y


def under_autocast(_: Any, x: Tensor) -> Tensor:
    y = x * 1
    with torch.autocast("cpu"):
        z = y @ y.t()
    return z.relu_()


def double_selected(_: Any, x: Tensor) -> Tensor:
    y = x.masked_select(x > -9)
    view = y.view(-1, 1)
    y[1:3].mul_(2)
    return view


def shift_indices(_: Any, x: Tensor) -> Tensor:
    return x.nonzero().add_(1)


@each_row("function", [
    *(lambda _, x, body=body: body(x) for body in some(BODIES, 4)),
    change_input,
    count,
    lambda model, x: model.norm(x),
    through_broadcasting,
    under_autocast,
    double_selected,
    shift_indices,
])  # fmt: skip
def test_writes_with_an_open_batch_size(function: Callable[..., Any]) -> None:
    check(function, ({0: Dim.AUTO},), (randn(4, 3),), (randn(7, 3),))


def add_named(_: Any, x: Tensor, y: Tensor) -> Tensor:
    z = x + y
    z.add_(y)
    y.mul_(2)
    return z


def write_at_positions(model: Any, x: Tensor, positions: Tensor) -> Tensor:
    model.cache.index_copy_(1, positions, x)
    return model.cache * 1


def write_from_a_number(model: Any, x: Tensor, start: int) -> Tensor:
    end = start + x.shape[1]
    model.cache[:, start:end] = x
    return model.cache[:, :end].clone()


def write_from_a_position_in_a_tensor(model: Any, x: Tensor, position: Tensor) -> Tensor:
    start = position.item()
    torch._check(start >= 0)
    torch._check(start + x.shape[1] <= 16)
    model.cache.narrow(1, start, x.shape[1]).copy_(x)
    return model.cache.sum(1)


def write_into_a_tensor_whose_size_was_data(_: Any, size: Tensor) -> Tensor:
    rows = size.item()
    torch._check(rows > 0)
    y = torch.zeros(rows, 3)
    y.add_(1)
    y[0] = 7
    return y


BATCH, STEPS = Dim("batch", min=2, max=64), Dim("steps", min=2, max=8)
THREE, FIVE = randn(1, 3, 4), randn(1, 5, 4)


@each_row("function, shapes, calls", [
    (add_named, ({0: BATCH}, {0: BATCH}), [(randn(4, 3), randn(4, 3)), (randn(6, 3), randn(6, 3))]),
    (write_at_positions, ({1: STEPS}, {0: STEPS}), [(THREE, arange(3)), (FIVE, arange(3, 8))]),
    (write_from_a_number, ({1: STEPS}, Dim.DYNAMIC), [(THREE, 2), (FIVE, 4)]),
    (write_from_a_position_in_a_tensor, ({1: STEPS}, None), [(THREE, tensor(2)), (FIVE, tensor(4))]),
    (write_into_a_tensor_whose_size_was_data, (None,), [(tensor(3),), (tensor(5),)]),
])  # fmt: skip
def test_writes_with_other_open_sizes(function: Callable[..., Any], shapes: Any, calls: list[Any]) -> None:
    check(function, shapes, *calls)


@each_row("function", BODIES[:4])
def test_making_a_program_functional_assumes_nothing_of_its_sizes(function: Callable[..., Any]) -> None:
    program = torch.export.export(
        Function(function), (randn(4, 3),), dynamic_shapes={"args": ({0: Dim.AUTO},)}, strict=False
    )
    size = next(node for node in program.graph.nodes if node.name == "args_0").meta["val"].shape[0]
    before = list(size.node.shape_env.guards)

    functionalize(program)

    assert size.node.shape_env.guards == before


def test_sizes_are_compared_without_assuming_anything() -> None:
    program = torch.export.export(
        Function(lambda x: x.nonzero()), (randn(4, 3),), dynamic_shapes=(({0: Dim.AUTO},),), strict=False
    )
    values = {node.name: node.meta.get("val") for node in program.graph.nodes}
    given, found = values["args_0"].shape[0], values["nonzero"].shape[0]
    before = list(given.node.shape_env.guards)

    claims = [
        are_sizes_equal([given, 3], [given, 3]),
        are_sizes_equal([found], [found]),
        are_sizes_equal([given], [4]),
        are_sizes_equal([found], [given]),
        are_sizes_equal([given], [given, 1]),
        is_statically_true(found >= 0),
        is_statically_true(found == 7),
    ]

    assert claims == [True, True, False, False, False, True, False]
    assert given.node.shape_env.guards == before


def test_a_buffer_is_replaced_by_a_tensor_of_a_size_that_is_data() -> None:
    def program(model: Any, x: Tensor) -> Tensor:
        model.count = x.masked_select(x > 0)
        return x

    model = stateful(program)

    graph = extract_ir(model, (randn(4),))

    for x in (randn(4), torch.ones(4), -torch.ones(4)):
        _, updates = execute_ir(graph, (x,), weights=model.state_dict(), return_mutations=True)
        assert_same(updates, {"count": x[x > 0]}, "the updates")


def test_a_write_to_a_tensor_expanded_to_an_open_size_is_refused() -> None:
    def program(x: Tensor, y: Tensor) -> Tensor:
        z = x * 1
        z.expand(y.shape[0], 3).zero_()
        return z

    with pytest.raises(ConversionError, match=r"aten.zero_.default changes an expanded tensor in place"):
        extract_ir(Function(program), (randn(3), randn(4)), dynamic_shapes=((None, {0: Dim.AUTO}),))
