"""Values that only running tells: assertions speak first, the ranges of their symbols hold at the end."""

import pytest
from torch import ones, tensor, zeros

from npu_ir import ExecutionError, Graph, execute_ir, parse_ir
from tests.support.rows import each_row


def reading(more: str = "") -> Graph:
    """Return a graph that reads a number from 0 to 4, and what it does next."""
    return parse_ir(
        "graph g { symbol u0 in [0, 4] input %x: i64[] %item: int(u0) = aten.item.default(self=%x) "
        f"{more} return %item }}"
    )


ASSERTION = (
    "%ok: bool = operator.lt(a=%item) {b=5} "
    'aten._assert_scalar.default(self=%ok) {assert_msg="five is too many"}'
)


@each_row("number", [-1, 5, 70])
def test_a_value_out_of_range_is_refused_at_the_end(number: int) -> None:
    graph = reading()

    assert execute_ir(graph, (tensor(4),)) == 4
    with pytest.raises(
        ExecutionError,
        match=rf"%item implies u0 = {number}, the graph was made for u0 in \[0, 4\]\n  at: graph 'g'",
    ):
        execute_ir(graph, (tensor(number),))


def test_an_assertion_speaks_before_the_range() -> None:
    graph = reading(ASSERTION)

    with pytest.raises(
        ExecutionError, match="aten._assert_scalar.default failed: RuntimeError: five is too many"
    ):
        execute_ir(graph, (tensor(7),))
    with pytest.raises(ExecutionError, match="%item implies u0 = -1"):
        execute_ir(graph, (tensor(-1),))


def test_a_size_out_of_range_is_refused_at_the_end() -> None:
    graph = parse_ir(
        "graph g { symbol u0 in [0, 2] input %x: f32[4] "
        "%n: i64[u0, 1] = aten.nonzero.default(self=%x) %m: i64[u0, 1] = "
        "aten.neg.default(self=%n) return %m }"
    )

    assert execute_ir(graph, (tensor([1.0, 0, 1, 0]),)).tolist() == [[0], [-2]]
    with pytest.raises(
        ExecutionError, match=r"dimension 0 of %n implies u0 = 4, the graph was made for u0 in \[0, 2\]"
    ):
        execute_ir(graph, (ones(4),))


def test_a_value_that_two_outputs_tell_must_be_one() -> None:
    graph = parse_ir(
        "graph g { symbol u0 in [0, 9] input %x: i64[] input %y: i64[] "
        "%a: int(u0) = aten.item.default(self=%x) %b: int(u0) = aten.item.default(self=%y) return (%a, %b) }"
    )

    assert execute_ir(graph, (tensor(3), tensor(3))) == (3, 3)
    with pytest.raises(ExecutionError, match=r"returned 4 for %b.*u0 = 3"):
        execute_ir(graph, (tensor(3), tensor(4)))


def test_a_range_holds_at_the_end_of_a_region() -> None:
    graph = parse_ir(
        "graph g { symbol u0 in [0, 1] input %p: bool[] input %x: f32[4]\n"
        "%c: i64[] = higher_order.cond(pred=%p, operands=(%x))\n"
        "region true_fn = graph a { input %y: f32[4] %n: i64[u0, 1] = aten.nonzero.default(self=%y)\n"
        "  %s: i64[] = aten.sum.default(self=%n) return [%s] }\n"
        "region false_fn = graph b { input %y: f32[4] %t: i64[] = aten.sum.default(self=%y) {dtype=i64}\n"
        "  return [%t] } return %c }"
    )

    assert execute_ir(graph, (tensor(False), ones(4))) == 4
    assert execute_ir(graph, (tensor(True), zeros(4))) == 0
    with pytest.raises(
        ExecutionError,
        match=(
            r"dimension 0 of %n implies u0 = 4, .* u0 in \[0, 1\]\n"
            r"  at: graph 'a', in a region of node '\S+'"
        ),
    ):
        execute_ir(graph, (tensor(True), ones(4)))
