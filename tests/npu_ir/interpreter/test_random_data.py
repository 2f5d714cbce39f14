"""Random arguments for a graph: of its types, nested as it is called, and the same for the same seed."""

from __future__ import annotations

import pytest
import torch

from npu_ir import Interpreter, ScalarType, TensorType, execute_ir, parse_ir
from npu_ir.core.node import Value
from npu_ir.errors import UsageError
from npu_ir.interpreter.random_data import make_input, random_call, random_weights
from tests.support.rows import each_row

NESTED = """
graph Nested {
  input %x: f32[2, 3]
  input %ids: i64[4]
  input %mask: bool[2]
  param %w: f32[2, 3]
  call ([%x, (%ids, None)], 2.5, mask=%mask, again=%x)

  %y: f32[2, 3] = aten.mul.Tensor(self=%x, other=%w)

  return (%y, %ids, %mask)
}
"""
OPEN = """
graph Open {
  symbol a in [0, 64]
  symbol b in [5, inf]
  require mod(a, 3) == 0
  input %x: f32[a, b]
  input %rows: int(a)
  input %y: f32[a, 2]

  %z: f32[a, b+2] = aten.cat.default(tensors=[%x, %y]) {dim=1}

  return (%z, %rows)
}
"""


def test_a_call_has_the_structure_and_the_types_of_the_graph() -> None:
    graph = parse_ir(NESTED)

    args, kwargs = random_call(graph, int_high=7)

    (x, (ids, none)), number = args
    assert (x.shape, x.dtype, none, number) == ((2, 3), torch.float32, None, 2.5)
    assert ids.dtype is torch.int64
    assert set(ids.tolist()) <= set(range(7))
    assert list(kwargs) == ["mask", "again"]
    assert kwargs["again"] is x
    y, *_ = execute_ir(graph, args, kwargs, weights=random_weights(graph, seed=0))
    assert y.shape == (2, 3)


def test_the_same_seed_gives_the_same_call() -> None:
    graph = parse_ir(NESTED)

    first, again, other = (random_call(graph, seed=seed)[0][0][0] for seed in (1, 1, 2))

    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert set(random_call(graph)[0][0][1][0].tolist()) <= {0, 1}


def test_open_sizes_are_the_smallest_that_the_graph_allows() -> None:
    graph = parse_ir(OPEN)

    args, kwargs = random_call(graph)

    assert (args[0].shape, args[1], args[2].shape, kwargs) == ((3, 5), 3, (3, 2), {})
    assert Interpreter(graph).run(*args, **kwargs)[0].shape == (3, 7)


def test_sizes_are_taken_as_they_are_given() -> None:
    args, _ = random_call(parse_ir(OPEN), sizes={"a": 6})

    assert (args[0].shape, args[1]) == ((6, 5), 6)


@each_row("kind", ["int", "bool"])
def test_a_number_that_nothing_tells_is_refused(kind: str) -> None:
    graph = parse_ir(f"graph G {{\n  input %n: {kind}\n\n\n  return %n\n}}")

    with pytest.raises(UsageError, match=f"input %n: {kind} is not given\n  fix: --input n=VALUE"):
        random_call(graph)


def test_a_float_is_made_up_between_0_and_1() -> None:
    graph = parse_ir("graph G {\n  input %a: float\n  input %b: float\n\n  return (%a, %b)\n}")

    (first, second), _ = random_call(graph, seed=3)

    assert 0 < first < 1
    assert 0 < second < 1
    assert first != second
    assert random_call(graph, seed=3)[0] == (first, second)


def test_a_number_in_terms_of_an_unknown_size_is_refused() -> None:
    graph = parse_ir(OPEN)

    with pytest.raises(UsageError, match=r"input %rows: int\(a\) is not given"):
        make_input(graph.value("rows"), {}, lambda type: torch.empty(type.static_shape))


def test_a_tensor_is_made_for_a_type_without_symbols() -> None:
    value = Value(0, "x", TensorType((2,), torch.float32))

    assert make_input(value, {}, lambda type: torch.ones(type.static_shape)).tolist() == [1.0, 1.0]
    assert make_input(Value(1, "n", ScalarType("int", 3)), {}, lambda type: torch.empty(0)) == 3


def test_a_weight_that_cannot_be_made_up_is_named() -> None:
    graph = parse_ir(
        """graph Huge {
  param %w: f32[4000000, 4000000]
  call ()


  return %w
}
"""
    )

    with pytest.raises(UsageError, match="(?s)weight 'w': PyTorch cannot make data of type .*--weights FILE"):
        random_weights(graph, seed=0)
