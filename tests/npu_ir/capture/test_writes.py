"""Writes in place: replaced directly, decomposed, or traced again."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn, randn, tensor, zeros

from npu_ir import ConversionError, Graph, convert_exported_program, execute_ir, extract_ir
from npu_ir.capture import functionalize, retrace
from tests.support.corpus.case import Function, Holding
from tests.support.corpus.comparison import assert_same
from tests.support.corpus.operator_library import increment
from tests.support.rows import each_row

# Writes that PyTorch's functionalization gets wrong, or that no graph can hold.


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


@each_row("function, tensors", {
    "composite": (lambda x, y: torch.linalg.inv(x, out=y), [torch.eye(3) * 2, torch.ones(3, 3)]),
    "composite whose write was lost": (lambda x, y: torch.linalg.matrix_rank(x, hermitian=True, out=y),
        [torch.eye(3), torch.tensor(9)]),
    "composite with two results": (lambda x, y, z: torch.linalg.lu_factor(x, out=(y, z)),
        [torch.randn(3, 3), torch.ones(3, 3), torch.ones(3, dtype=torch.int32)]),
    "overloads by type": (lambda x, y: torch.linalg.matrix_norm(x, ord="nuc", out=y),
        [torch.eye(3), torch.tensor(0.0)]),
    "arguments in another order": (lambda x: x.polygamma_(2), [torch.rand(4) + 1]),
    "hidden write to running statistics": (norm_into(torch.ops.aten.native_batch_norm.out), norm_tensors()),
    "running statistics and out=": (norm_into(torch.ops.aten._native_batch_norm_legit.out), norm_tensors()),
})  # fmt: skip
def test_what_an_op_writes_into_its_inputs_is_an_update(
    function: Callable[..., Any], tensors: list[torch.Tensor]
) -> None:
    expected_inputs = clones(tensors)
    expected = function(*expected_inputs)
    given = clones(tensors)

    graph = extract_ir(Function(function), clones(tensors))
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


def test_a_write_that_pytorch_loses_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retrace, "decompose_write", lambda node: None)

    with pytest.raises(
        ConversionError, match=r"loses what aten\.linalg_matrix_rank\.\w+ writes into 'args_1'"
    ):
        extract_ir(
            Function(lambda x, y: torch.linalg.matrix_rank(x, hermitian=True, out=y)),
            (torch.eye(3), torch.tensor(9)),
        )


def test_the_content_of_a_tensor_of_one_element_may_have_any_stride() -> None:
    constant = torch.arange(4.0)[1::2][:1]

    graph = extract_ir(Function(lambda x: x + constant), (torch.zeros(2),))

    assert torch.equal(execute_ir(graph, (torch.zeros(2),)), torch.ones(2))
    assert "[1.0]" in str(graph)


def increment_part(view: Callable[..., Any]) -> Callable[..., Any]:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = x * 1
        increment(view(y), 2.0)
        return y

    return function


@each_row("view", [lambda x: x, lambda x: x[1:]])
def test_a_program_that_pytorch_made_functional_is_converted_too(view: Callable[..., Any]) -> None:
    function = increment_part(view)

    program = torch.export.export(Function(function), (torch.ones(4),)).run_decompositions({})
    assert "auto_functionalized_v2" in str(program.graph)

    graph = convert_exported_program(program)

    x = torch.arange(4.0)
    assert torch.equal(execute_ir(graph, (x,)), function(x))


def test_of_views_that_pytorch_made_functional_those_with_strides_of_their_own_are_refused() -> None:
    function = increment_part(lambda x: x.view(2, 2).t()[1])
    program = torch.export.export(Function(function), (torch.ones(4),)).run_decompositions({})

    with pytest.raises(
        ConversionError, match=r"mutation on a view chain of length 2, where view 1 was an as_strided"
    ):
        convert_exported_program(program)


# Writes whose functional op takes their place: no second trace, and the updates of eager to the bit.


def model(function: Callable[..., Any], *, training: bool = False) -> nn.Module:
    """Return a module with layers, a cache and a counter, which calls a function with itself."""
    torch.manual_seed(1)
    module = Holding(
        function,
        norm=nn.BatchNorm1d(3),
        plain_norm=nn.BatchNorm1d(3, affine=False),
        drop=nn.Dropout(0.5, inplace=True),
        cache=zeros(1, 8, 3),
    )
    return module.train(training)


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


def check(function: Callable[..., Any], args: tuple[Tensor, ...], *, training: bool = False) -> Graph:
    """Return the captured graph, which gives results and updates of eager, to the bit."""
    graph = extract_ir(model(function, training=training), clones(args))
    eager, inputs = model(function, training=training), clones(args)
    weights = {key: tensor.clone() for key, tensor in eager.state_dict().items()}
    torch.manual_seed(2)
    results, updates = execute_ir(graph, clones(args), weights=weights, return_mutations=True)
    torch.manual_seed(2)
    assert_same(results, eager(*inputs), "the results")
    for key, value in eager.state_dict().items():
        assert_same(updates.get(key, weights[key]), value, key)
    for value, before, after in zip(graph.inputs, args, inputs, strict=True):
        assert_same(updates.get(value.name, before), after, value.name)
    return graph


def write_a_cache(s: Any, x: Tensor) -> Tensor:
    s.cache.index_copy_(1, tensor([3, 4]), x[None, :2])
    return s.cache.sum(1) + x


def write_all(s: Any, x: Tensor) -> Tensor:
    s.cache.copy_(x.sum() + s.cache)
    return s.cache * x.sum()


def add_to_input(s: Any, x: Tensor) -> Tensor:
    x.mul_(2)
    return x + 1


NORM = {"norm.running_mean", "norm.running_var", "norm.num_batches_tracked"}
FUNCTIONAL = "aten._native_batch_norm_legit_functional.default"


@each_row("function, training, updated, op", {
    "statistics": (lambda s, x: s.norm(x), True, NORM, FUNCTIONAL),
    "without weights": (lambda s, x: s.plain_norm(x), True, {f"plain_{n}" for n in NORM}, FUNCTIONAL),
    "statistics in eval mode": (lambda s, x: s.norm(x), False, set(), "aten.batch_norm.default"),
    "a static cache": (write_a_cache, False, {"cache"}, "aten.index_copy.default"),
    "a whole buffer": (write_all, False, {"cache"}, "aten.copy.default"),
    "an input": (add_to_input, False, {"args_0"}, "aten.mul.Tensor"),
    "an input that is returned": (lambda s, x: x.add_(1), False, {"args_0"}, "aten.add.Tensor"),
    "a dropout": (lambda s, x: s.drop(torch.relu_(x * 2)), False, set(), "aten.dropout.default"),
    "a dropout in training": (lambda s, x: s.drop(x * 2), True, set(), "aten.dropout.default"),
})  # fmt: skip
def test_these_writes_are_replaced_without_another_trace(
    function: Callable[..., Any], training: bool, updated: set[str], op: str, traces: list[str]
) -> None:
    graph = check(function, (randn(4, 3),), training=training)

    assert {target.argument.target for target in graph.updates if target.argument is not None} == updated
    assert op in {node.op_type for node in graph.nodes}
    assert traces == []


def write_a_row(s: Any, x: Tensor) -> Tensor:
    s.cache[0, 1] = x[0]
    return s.cache.sum() + x


def write_under_a_view(s: Any, x: Tensor) -> Any:
    row = s.cache[0]
    s.cache.add_(1)
    return row * 2, x


def normalize_twice(s: Any, x: Tensor) -> Tensor:
    return s.norm(s.norm(x) * 2 + 1)


def read_an_input_view(s: Any, x: Tensor) -> Any:
    view = x.t()
    x.add_(1)
    return view + 1


@pytest.mark.parametrize("function", [write_a_row, write_under_a_view, normalize_twice, read_an_input_view])
def test_other_writes_are_traced_again_and_right(function: Callable[..., Any], traces: list[str]) -> None:
    check(function, (randn(4, 3),), training=True)

    assert traces == ["traced"]
