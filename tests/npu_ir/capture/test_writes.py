"""Writes in place: replaced directly, decomposed, or traced again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn, randn, tensor, zeros
from torch.export import Dim

from npu_ir import ConversionError, Graph, convert_exported_program, execute_ir, extract_ir
from npu_ir.capture import functionalize, retrace
from tests.support.corpus.comparison import assert_same
from tests.support.rows import each_row

# Writes that PyTorch's functionalization gets wrong, or that no graph can hold.


class Call(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self._function = function

    def forward(self, *tensors: torch.Tensor) -> Any:
        return self._function(*tensors)


def clones(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    return [tensor.clone() for tensor in tensors]


def norm_into(op: Any) -> Callable[..., Any]:
    def call(
        x: torch.Tensor,
        mean: torch.Tensor,
        var: torch.Tensor,
        out: torch.Tensor,
        a: torch.Tensor,
        b: torch.Tensor,
    ) -> Any:
        return op(x, None, None, mean, var, True, 0.1, 1e-5, out=out, save_mean=a, save_invstd=b)

    return call


def norm_tensors(dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    return [
        torch.randn(4, 3, 2, dtype=dtype),
        *(torch.rand(3, dtype=dtype) for _ in range(2)),
        torch.ones(4, 3, 2),
        torch.ones(3),
        torch.ones(3),
    ]


@each_row(
    "function, tensors",
    {
        "composite": (lambda x, y: torch.linalg.inv(x, out=y), [torch.eye(3) * 2, torch.ones(3, 3)]),
        "composite whose write was lost": (
            lambda x, y: torch.linalg.matrix_rank(x, hermitian=True, out=y),
            [torch.eye(3), torch.tensor(9)],
        ),
        "composite with two results": (
            lambda x, y, z: torch.linalg.lu_factor(x, out=(y, z)),
            [torch.randn(3, 3), torch.ones(3, 3), torch.ones(3, dtype=torch.int32)],
        ),
        "overloads by type": (
            lambda x, y: torch.linalg.matrix_norm(x, ord="nuc", out=y),
            [torch.eye(3), torch.tensor(0.0)],
        ),
        "arguments in another order": (lambda x: x.polygamma_(2), [torch.rand(4) + 1]),
        "hidden write to running statistics": (
            norm_into(torch.ops.aten.native_batch_norm.out),
            norm_tensors(),
        ),
        "running statistics and out=": (
            norm_into(torch.ops.aten._native_batch_norm_legit.out),
            norm_tensors(),
        ),
    },
)
def test_what_an_op_writes_into_its_inputs_is_an_update(
    function: Callable[..., Any], tensors: list[torch.Tensor]
) -> None:
    expected_inputs = clones(tensors)
    expected = function(*expected_inputs)
    given = clones(tensors)

    graph = extract_ir(Call(function), clones(tensors))
    results, updates = execute_ir(graph, given, return_mutations=True)

    torch.testing.assert_close(
        results, tuple(expected) if isinstance(results, tuple) else expected, rtol=0, atol=0
    )
    after = [updates.get(value.name, tensor) for value, tensor in zip(graph.inputs, given, strict=True)]
    torch.testing.assert_close(after, expected_inputs, rtol=0, atol=0)
    torch.testing.assert_close(given, tensors, rtol=0, atol=0)


def test_half_precision_running_statistics_are_updated_in_their_dtype() -> None:
    model = nn.BatchNorm1d(3).bfloat16()
    x = torch.randn(8, 3, dtype=torch.bfloat16)
    weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}

    graph = extract_ir(model, (x,))
    result, updates = execute_ir(graph, (x,), weights=weights, return_mutations=True)

    assert torch.equal(result, model(x))
    assert updates["running_mean"].dtype is torch.bfloat16
    assert torch.equal(updates["running_mean"], model.running_mean)


@each_row(
    "function",
    {
        "input": lambda x: x.t_(),
        "input, by way of an op that returns it": lambda x: x.add_(1).t_(),
    },
)
def test_giving_an_input_another_shape_in_place_is_refused(function: Callable[..., Any]) -> None:
    with pytest.raises(
        ConversionError, match=r"aten\.t_\.default changes the shape or strides of 'tensors_0'"
    ) as caught:
        extract_ir(Call(function), (torch.ones(2, 3),))

    assert "test_writes.py:" in str(caught.value)
    assert "take a view of it" in str(caught.value)


def test_giving_a_tensor_of_the_model_another_shape_in_place_is_fine() -> None:
    x = torch.randn(2, 3)

    graph = extract_ir(Call(lambda x: (x * 2).t_() + 1), (x,))

    assert torch.equal(execute_ir(graph, (x,)), (x * 2).t() + 1)


def test_a_write_that_pytorch_loses_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retrace, "decompose_write", lambda node: None)

    with pytest.raises(
        ConversionError, match=r"loses what aten\.linalg_matrix_rank\.\w+ writes into 'tensors_1'"
    ):
        extract_ir(
            Call(lambda x, y: torch.linalg.matrix_rank(x, hermitian=True, out=y)),
            (torch.eye(3), torch.tensor(9)),
        )


def test_the_content_of_a_tensor_of_one_element_may_have_any_stride() -> None:
    constant = torch.arange(4.0)[1::2][:1]

    graph = extract_ir(Call(lambda x: x + constant), (torch.zeros(2),))

    assert torch.equal(execute_ir(graph, (torch.zeros(2),)), torch.ones(2))
    assert "[1.0]" in str(graph)


@pytest.fixture
def misleading_ops() -> Iterator[None]:
    """Custom ops whose names are those of a pair that they are not: ``bump`` is not what ``bump_`` writes."""
    with torch.library._scoped_library("npu_ir_misleading", "FRAGMENT") as library:
        library.define("bump_(Tensor(a!) x) -> Tensor(a!)")
        library.define("bump(Tensor x) -> Tensor")
        library.impl("bump_", lambda x: x.add_(1), "CPU")
        library.impl("bump", lambda x: x - 1, "CPU")
        library.impl("bump_", lambda x: x, "Meta")
        library.impl("bump", torch.empty_like, "Meta")
        yield


@pytest.mark.usefixtures("misleading_ops")
def test_custom_ops_are_not_paired_by_their_names() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        y = x * 1
        torch.ops.npu_ir_misleading.bump_(y)
        return y

    with pytest.raises(
        ConversionError, match=r"npu_ir_misleading.bump_.default returns the tensor that it changes"
    ):
        extract_ir(Call(program), (torch.ones(2),))


@pytest.fixture
def increment() -> Iterator[None]:
    with torch.library._scoped_library("npu_ir_increment", "FRAGMENT") as library:
        library.define("increment_(Tensor(a!) x, int n) -> ()")
        library.impl("increment_", add_in_place, "CompositeExplicitAutograd")
        yield


def increment_part(view: Callable[..., Any]) -> Callable[..., Any]:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = x * 1
        torch.ops.npu_ir_increment.increment_(view(y), 2)
        return y

    return function


def add_in_place(x: torch.Tensor, n: int) -> None:
    x.add_(n)


@pytest.mark.usefixtures("increment")
@each_row("view", [lambda x: x, lambda x: x[1:]])
def test_a_program_that_pytorch_made_functional_is_converted_too(view: Callable[..., Any]) -> None:
    function = increment_part(view)

    program = torch.export.export(Call(function), (torch.ones(4),)).run_decompositions({})
    assert "auto_functionalized_v2" in str(program.graph)

    graph = convert_exported_program(program)

    x = torch.arange(4.0)
    assert torch.equal(execute_ir(graph, (x,)), function(x))


@pytest.mark.usefixtures("increment")
def test_of_views_that_pytorch_made_functional_those_with_strides_of_their_own_are_refused() -> None:
    function = increment_part(lambda x: x.view(2, 2).t()[1])
    program = torch.export.export(Call(function), (torch.ones(4),)).run_decompositions({})

    with pytest.raises(
        ConversionError, match=r"mutation on a view chain of length 2, where view 1 was an as_strided"
    ):
        convert_exported_program(program)


# Writes whose functional op takes their place: no second trace, and the updates of eager to the bit.


class State(nn.Module):
    """Calls a function with itself: a module with layers, a cache and a counter."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function
        self.norm = nn.BatchNorm1d(3)
        self.plain_norm = nn.BatchNorm1d(3, affine=False)
        self.average = nn.BatchNorm1d(3, momentum=None)
        self.drop = nn.Dropout(0.5, inplace=True)
        self.scale = nn.Parameter(torch.ones(3))
        self.register_buffer("cache", zeros(1, 8, 3))
        self.register_buffer("count", zeros((), dtype=torch.long))
        self.register_buffer("other", self.count)

    def forward(self, *args: Any) -> Any:
        return self.function(self, *args)


def model(function: Callable[..., Any], *, training: bool = False) -> State:
    torch.manual_seed(1)
    return State(function).train(training)


@pytest.fixture
def no_second_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        raise AssertionError("the program was traced a second time")

    monkeypatch.setattr(functionalize, "retrace_program", refuse)


@pytest.fixture
def traces(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Gets an entry for each second trace."""
    made: list[str] = []
    trace = functionalize.retrace_program

    def counted(*args: Any) -> Any:
        made.append("traced")
        return trace(*args)

    monkeypatch.setattr(functionalize, "retrace_program", counted)
    return made


def check(
    function: Callable[..., Any],
    args: tuple[Tensor, ...],
    *,
    training: bool = False,
    dynamic_shapes: Any = None,
    calls: tuple[tuple[Tensor, ...], ...] = (),
) -> Graph:
    """Return the captured graph, which gives results and updates of eager, to the bit."""

    def copies(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return tuple(tensor.clone() for tensor in tensors)

    graph = extract_ir(model(function, training=training), copies(args), dynamic_shapes=dynamic_shapes)
    for given in (args, *calls):
        eager, inputs = model(function, training=training), copies(given)
        weights = {key: tensor.clone() for key, tensor in eager.state_dict().items()}
        torch.manual_seed(2)
        results, updates = execute_ir(graph, copies(given), weights=weights, return_mutations=True)
        torch.manual_seed(2)
        assert_same(results, eager(*inputs), "the results")
        for key, value in eager.state_dict().items():
            assert_same(updates.get(key, weights[key]), value, key)
        for value, before, after in zip(graph.inputs, given, inputs, strict=True):
            assert_same(updates.get(value.name, before), after, value.name)
    return graph


def updated(graph: Graph) -> set[str]:
    return {target.argument.target or target.name for target in graph.updates if target.argument is not None}


@pytest.mark.usefixtures("no_second_trace")
@each_row("layer", ["norm", "plain_norm"])
def test_batch_norm_in_training_mode_updates_its_statistics(layer: str) -> None:
    graph = check(lambda s, x: getattr(s, layer)(x), (randn(4, 3),), training=True)

    assert updated(graph) == {
        f"{layer}.{name}" for name in ("running_mean", "running_var", "num_batches_tracked")
    }
    assert "aten._native_batch_norm_legit_functional.default" in {node.op_type for node in graph.nodes}


@pytest.mark.usefixtures("no_second_trace")
def test_statistics_that_are_read_after_a_batch_norm_are_the_new_ones() -> None:
    check(
        lambda s, x: (s.norm(x), s.norm.running_mean + 1, s.norm.running_var * 2),
        (randn(4, 3),),
        training=True,
    )


@pytest.mark.usefixtures("no_second_trace")
def test_batch_norm_in_training_mode_takes_an_open_batch() -> None:
    shapes = {"args": ({0: Dim("b", min=2)},)}

    check(
        lambda s, x: s.norm(x),
        (randn(4, 3),),
        training=True,
        dynamic_shapes=shapes,
        calls=((randn(2, 3),), (randn(9, 3),)),
    )


@pytest.mark.usefixtures("no_second_trace")
def test_batch_norm_in_eval_mode_changes_nothing() -> None:
    graph = check(lambda s, x: s.norm(x), (randn(4, 3),))

    assert updated(graph) == set()
    assert [node.op_type for node in graph.nodes] == ["aten.batch_norm.default"]


@pytest.mark.usefixtures("no_second_trace")
def test_a_static_cache_is_updated_by_index_copy() -> None:
    def function(s: State, x: Tensor, at: Tensor) -> Any:
        s.cache.index_copy_(1, at, x)
        return s.cache.sum(1) + x.sum(1)

    graph = check(function, (randn(1, 2, 3), tensor([3, 4])))

    assert updated(graph) == {"cache"}
    assert "aten.index_copy.default" in {node.op_type for node in graph.nodes}


def add_to_input(s: State, x: Tensor) -> Tensor:
    x.mul_(2)
    return x + 1


def return_input(s: State, x: Tensor) -> Tensor:
    return x.add_(1)


def write_all(s: State, x: Tensor) -> Tensor:
    s.cache.copy_(x.sum() + s.cache)
    return s.cache * x.sum()


@pytest.mark.usefixtures("no_second_trace")
@each_row(
    "function, target",
    {
        "an input": (add_to_input, "args_0"),
        "an input that is returned": (return_input, "args_0"),
        "a whole buffer": (write_all, "cache"),
    },
)
def test_what_is_changed_in_place_is_an_update(function: Callable[..., Any], target: str) -> None:
    graph = check(function, (randn(4, 3),))

    assert updated(graph) == {target}


@pytest.mark.usefixtures("no_second_trace")
@each_row("training", [False, True])
def test_a_dropout_in_place_needs_no_second_trace(training: bool) -> None:
    graph = check(lambda s, x: s.drop(torch.relu_(x * 2)), (randn(4, 3),), training=training)

    assert [node.op_type for node in graph.nodes] == [
        "aten.mul.Tensor", "aten.relu.default", "aten.dropout.default",
    ]  # fmt: skip


def write_a_row(s: State, x: Tensor) -> Tensor:
    s.cache[0, 1] = x[0]
    return s.cache.sum() + x


def write_under_a_view(s: State, x: Tensor) -> Any:
    row = s.cache[0]
    s.cache.add_(1)
    return row * 2, x


def write_a_tied_buffer(s: State, x: Tensor) -> Tensor:
    s.count.add_(1)
    return x + s.other


def write_again(s: State, x: Tensor) -> Tensor:
    s.cache.zero_()
    s.cache.add_(1)
    return s.cache * x.sum()


def normalize_twice(s: State, x: Tensor) -> Tensor:
    return s.norm(s.norm(x) * 2 + 1)


def add_to_parameter(s: State, x: Tensor) -> Tensor:
    with torch.no_grad():
        s.scale.add_(1)
    return x * s.scale


def read_an_input_view(s: State, x: Tensor) -> Any:
    view = x.t()
    x.add_(1)
    return view + 1


@pytest.mark.parametrize(
    "function",
    [
        write_a_row,
        write_under_a_view,
        write_a_tied_buffer,
        write_again,
        normalize_twice,
        add_to_parameter,
        read_an_input_view,
    ],
)
def test_other_writes_are_traced_again_and_right(function: Callable[..., Any], traces: list[str]) -> None:
    check(function, (randn(4, 3),), training=True)

    assert traces == ["traced"]
