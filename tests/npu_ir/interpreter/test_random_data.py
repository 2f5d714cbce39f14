"""Random arguments for a graph: of its types, nested as it is called, and the same for the same seed."""

import pytest
import torch

from npu_ir import TensorType, execute_ir, parse_ir
from npu_ir.errors import UsageError
from npu_ir.interpreter.random_data import make_input, random_call, random_weights
from tests.support.rows import each_row
from tests.support.small_programs import program

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
  symbol a in [0, 64]
  symbol b in [5, inf]
  require mod(a, 3) == 0
  input %x: f32[a, b]
  input %rows: int(a)
  input %y: f32[a, 2]
  return ()
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


@each_row("sizes, expected", [({}, (3, 5)), ({"a": 6}, (6, 5))])
def test_open_sizes_are_as_given_or_the_smallest_that_the_graph_allows(
    sizes: dict[str, int], expected: tuple[int, int]
) -> None:
    (x, rows, y), kwargs = random_call(program(OPEN), sizes=sizes)

    assert (x.shape, rows, y.shape, kwargs) == (expected, expected[0], (expected[0], 2), {})


def test_a_float_is_made_up_between_0_and_1() -> None:
    graph = program("input %a: float input %b: float return (%a, %b)")

    (first, second), _ = random_call(graph, seed=3)

    assert 0 < first < 1
    assert 0 < second < 1
    assert first != second
    assert random_call(graph, seed=3)[0] == (first, second)


@each_row("kind", ["int", "bool"])
def test_a_number_that_nothing_tells_is_refused(kind: str) -> None:
    with pytest.raises(UsageError, match=f"input %n: {kind} is not given\n  fix: --input n=VALUE"):
        random_call(program(f"input %n: {kind} return %n"))


def test_an_input_is_made_of_its_type_and_the_sizes_that_are_known() -> None:
    def ones(type: TensorType) -> torch.Tensor:
        return torch.ones(type.static_shape)

    x, rows, _ = program(OPEN).inputs

    assert make_input(x, {"a": 2, "b": 1}, ones).tolist() == [[1.0], [1.0]]
    assert make_input(rows, {"a": 3}, ones) == 3
    with pytest.raises(UsageError, match=r"input %rows: int\(a\) is not given"):
        make_input(rows, {}, ones)


def test_a_weight_that_cannot_be_made_up_is_named() -> None:
    with pytest.raises(UsageError, match="(?s)weight 'w': PyTorch cannot make data of type .*--weights FILE"):
        random_weights(program("param %w: f32[4000000, 4000000] return %w"), seed=0)
