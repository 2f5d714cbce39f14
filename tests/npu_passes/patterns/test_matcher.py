"""A pattern finds the calls that it describes, and no others."""

import functools
import math
from typing import Any

import pytest
import torch

from npu_ir import Graph, TensorType
from npu_passes import PassError
from npu_passes.patterns import Rule, aten, attr, commutative, maybe, one_of, op, output, shared, var
from tests.support.passes.pattern_cases import capture, data, found
from tests.support.rows import each_row
from tests.support.small_programs import program

x, y, z = var("x"), var("y"), var("z")
add, mul, relu = aten.add.Tensor, aten.mul.Tensor, aten.relu.default
F32 = TensorType((3, 4), torch.float32)


def test_a_pattern_matches(subtests: pytest.Subtests) -> None:
    rows = {
        "an op over another": (relu(add(x, y)), lambda a, b: (a + b).relu(), 1),
        "another op": (relu(add(x, y)), lambda a, b: (a - b).relu(), 0),
        "a number is no value": (relu(add(x, y)), lambda a, b: (a + 1).relu(), 0),
        "a number": (add(x, 1), lambda a, b: a + 1, 1),
        "another number": (add(x, 1), lambda a, b: a + 2, 0),
        "1 is 1.0": (add(x, 1), lambda a, b: a + 1.0, 1),
        "1.0 is 1": (add(x, 1.0), lambda a, b: a + 1, 1),
        "a value is no number": (add(x, 1), lambda a, b: a + b, 0),
        "0.0 is not -0.0": (mul(x, 0.0), lambda a, b: a * -0.0, 0),
        "-0.0": (mul(x, -0.0), lambda a, b: a * -0.0, 1),
        "nan": (mul(x, math.nan), lambda a, b: a * math.nan, 1),
        "infinities": (mul(x, math.inf), lambda a, b: a * -math.inf, 0),
        "an argument more": (add(x, y), lambda a, b: torch.add(a, b, alpha=2), 0),
        "open arguments": (add(x, y, ...), lambda a, b: torch.add(a, b, alpha=2), 1),
        "a keyword": (add(x, y, alpha=2), lambda a, b: torch.add(a, b, alpha=2), 1),
        "by default it is 1": (add(x, y, alpha=2), lambda a, b: a + b, 0),
        "one value twice": (add(x, x), lambda a, b: a + a, 1),
        "two values": (add(x, x), lambda a, b: a + b, 0),
        "one number twice": (add(mul(x, attr("c")), attr("c")), lambda a, b: a * 3 + 3, 1),
        "two numbers": (add(mul(x, attr("c")), attr("c")), lambda a, b: a * 3 + 4, 0),
        "a list of tensors": (aten.cat.default([x, y]), lambda a, b: torch.cat([a, b]), 1),
        "a longer list": (aten.cat.default([x, y]), lambda a, b: torch.cat([a, b, a]), 0),
        "one value twice in a list": (aten.cat.default([x, x]), lambda a, b: torch.cat([a, a]), 1),
        "a list of any": (aten.cat.default(attr("parts"), 1), lambda a, b: torch.cat([a, b, a], 1), 1),
        "a list of numbers": (aten.sum.dim_IntList(x, [0, 1]), lambda a, b: a.sum([0, 1]), 1),
        "another list of numbers": (aten.sum.dim_IntList(x, [0]), lambda a, b: a.sum([0, 1]), 0),
        "a list bound": (aten.sum.dim_IntList(x, attr("dim"), True), lambda a, b: a.sum([0, 1], True), 1),
        "True is not 1": (aten.sum.dim_IntList(x, [0], 1), lambda a, b: a.sum([0], True), 0),
        "the first output": (aten.split.Tensor(x, 2), lambda a, b: a.T.split(2), 1),
        "an output": (relu(output(aten.split.Tensor(x, 2), 1)), lambda a, b: a.T.split(2)[1].relu(), 1),
        "another output": (relu(aten.split.Tensor(x, 2)), lambda a, b: a.T.split(2)[1].relu(), 0),
        "an output that is not there": (output(aten.relu.default(x), 1), lambda a, b: a.relu(), 0),
    }
    for case, (pattern, function, count) in rows.items():
        with subtests.test(case):
            graph = capture(function, *data())

            assert len(found(pattern, graph)) == count


def test_an_optional_tensor_may_be_absent(subtests: pytest.Subtests) -> None:
    rows = {
        "absent, and not wanted": (aten.linear.default(x, y), {}, 1),
        "absent, though wanted": (aten.linear.default(x, y, z), {}, 0),
        "absent, as wanted": (aten.linear.default(x, y, None), {}, 1),
        "absent, maybe": (aten.linear.default(x, y, maybe("bias")), {}, 1),
        "there, and not wanted": (aten.linear.default(x, y), {"bias": None}, 0),
        "there, and wanted": (aten.linear.default(x, y, z), {"bias": None}, 1),
        "there, though not wanted": (aten.linear.default(x, y, None), {"bias": None}, 0),
        "there, maybe": (aten.linear.default(x, y, maybe("bias")), {"bias": None}, 1),
        "there, and no data": (aten.linear.default(x, y, attr("bias")), {"bias": None}, 0),
    }
    for case, (pattern, given, count) in rows.items():
        with subtests.test(case):
            graph = capture(
                lambda a, w, b: torch.nn.functional.linear(a, w, b if given else None),
                *data(2),
                torch.randn(3),
            )

            assert len(found(pattern, graph)) == count


def test_a_default_that_is_written_out_is_a_default() -> None:
    graph = program("""
        input %a: f32[2]
        %b: f32[2] = aten.add.Tensor(self=%a, other=%a) {alpha=1}
        return %b
    """)

    assert [len(found(pattern, graph)) for pattern in (add(x, y), add(x, y, alpha=1))] == [1, 1]


def test_a_match_knows_what_wildcards_stand_for() -> None:
    graph = capture(lambda a, b: torch.add(a, b, alpha=2).relu(), *data())

    (match,) = found(relu(add(x, y, alpha=attr("factor"))), graph)

    assert match["x"] is graph.inputs[0]
    assert match["y"] is graph.inputs[1]
    assert match["factor"] == 2
    assert [node.op_type for node in match.nodes] == ["aten.add.Tensor", "aten.relu.default"]
    with pytest.raises(PassError, match="the pattern has no wildcard 'q'"):
        match["q"]


def test_a_predicate_tells(subtests: pytest.Subtests) -> None:
    rows = {
        "a value": (relu(var("x", lambda value: value.tensor_type.rank == 2)), 1),
        "not a value": (relu(var("x", lambda value: value.tensor_type.rank == 3)), 0),
        "data": (add(x, attr("c", lambda item: item < 0)), 1),
        "not data": (add(x, attr("c", lambda item: item > 0)), 0),
        "any": (add(relu(x), maybe("c", lambda item: item == -1)), 1),
        "only the first time": (mul(var("x"), var("x", lambda value: False)), 0),
    }
    for case, (pattern, count) in rows.items():
        with subtests.test(case):
            graph = capture(lambda a: (a.relu() + -1, a * a), *data(1))

            assert len(found(pattern, graph)) == count


@each_row("function, count", {
    "as written": (lambda a, b: a * 2 + b.relu(), 1),
    "the other way round": (lambda a, b: b.relu() + a * 2, 1),
    "one is missing": (lambda a, b: a * 2 + b, 0),
    "alpha scales the second": (lambda a, b: torch.add(b.relu(), a * 2, alpha=3), 0),
})  # fmt: skip
def test_arguments_that_commute_match_in_either_order(function: Any, count: int) -> None:
    graph = capture(function, *data())

    assert len(found(commutative(add(mul(x, 2), relu(y), alpha=attr("alpha"))), graph)) == count


def test_the_first_order_that_fits_may_be_wrong_for_the_rest() -> None:
    """``x`` fits both products; which of them it must be, only the subtraction tells."""
    pattern = aten.sub.Tensor(commutative(add(mul(x, attr("c")), mul(y, attr("d")))), x)
    graph = capture(lambda a, b: (b * 2 + a * 3) - a, *data())

    (match,) = found(pattern, graph)

    assert match["x"] is graph.inputs[0]
    assert (match["c"], match["d"]) == (3, 2)


@each_row("function, bound", [
    (lambda a: a.relu().neg() + 1, "first"),
    (lambda a: a.exp().neg() + 1, "second"),
    (lambda a: a.neg() + 1, "third"),
])  # fmt: skip
def test_one_of_several_terms_matches(function: Any, bound: str) -> None:
    options = one_of(relu(var("first")), aten.exp.default(var("second")), var("third"))
    graph = capture(function, *data(1))

    match = found(add(aten.neg.default(options), 1), graph)[0]

    wanted = {name: graph.inputs[0] if name == bound else None for name in ("first", "second", "third")}
    assert match.bound == wanted


def test_all_options_are_tried_for_what_is_around_them() -> None:
    pattern = add(aten.neg.default(one_of(relu(x), y)), z, alpha=one_of(2, 1))
    graph = capture(lambda a, b: a.relu().neg() + b, *data())

    assert [match["y"] is None for match in found(pattern, graph)] == [True, False]


def test_a_call_that_is_there_twice_may_be_one_node() -> None:
    exp = aten.exp.default(x)
    pattern = aten.div.Tensor(exp, add(exp, 1))
    twice = capture(lambda a: a.exp() / (a.exp() + 1), *data(1))
    once = capture(lambda a: (lambda e: e / (e + 1))(a.exp()), *data(1))

    matches = [match for graph in (twice, once) for match in found(pattern, graph)]

    assert [len(match.nodes) for match in matches] == [4, 3]
    assert matches[1].nodes == once.nodes


def test_an_op_without_schema_has_values_by_position_and_data_by_name() -> None:
    graph = Graph("by hand")
    a, b = graph.add_input("a", F32), graph.add_input("b", F32)
    graph.insert("mylib.scaled", [a, b], {"scale": 2.0}, types=F32)

    assert len(found(op("mylib.scaled")(x, y, scale=2), graph)) == 1
    assert len(found(op("mylib.scaled")(x, y, ...), graph)) == 1
    assert not found(op("mylib.scaled")(x, y), graph)
    assert not found(op("mylib.scaled")(x, scale=2), graph)


def test_a_node_with_regions_does_not_match() -> None:
    def branch(p: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
        return torch.cond(p.sum() > 0, lambda t: t.sin(), lambda t: t.cos(), (a,))

    graph = capture(branch, *data(2))

    assert not found(op("higher_order.cond")(x, ...), graph)
    assert len(list(graph.nodes_of("higher_order.cond"))) == 1


@each_row("make, message", [
    (lambda: aten.ad.Tensor(x, y), "there is no operator aten.ad.Tensor"),
    (lambda: op("aten.ad.Tensor"), "there is no operator aten.ad.Tensor"),
    (lambda: aten.add(x, y), "aten.add is not an overload of an operator"),
    (lambda: relu(x, y), "aten.relu.default takes 1 arguments, not 2"),
    (lambda: relu(x, beta=2), "aten.relu.default has no argument 'beta'"),
    (lambda: op("aten.relu.default")(x, self=y), "gets its argument 'self' twice"),
    (lambda: add(..., x), "... follows the positional arguments, once"),
    (lambda: commutative(relu(x)), "aten.relu.default does not commute"),
    (lambda: commutative(aten.sub.Tensor(x, y)), "aten.sub.Tensor does not commute"),
    (lambda: commutative(add(x, ...)), "in its first two arguments, and 1 of them"),
    (lambda: commutative(op("mylib.plus")(x)), "commutes in its first two"),
    (lambda: Rule("r", relu(x), 3), "rule 'r': the replacement is 3, not a value"),
    (lambda: Rule("r", add(x, attr("c")), attr("c")), "the replacement is .*, not a value"),
    (lambda: Rule("r", relu(x), aten.exp), "the replacement is .*, not a value"),
    (lambda: Rule("r", relu(x), aten.exp.default), "not a value"),
    (lambda: Rule("r", relu(x), (x, 3)), "the replacement is 3, not a value"),
    (lambda: Rule("r", relu(x), one_of(x, relu(x))), "the replacement is .*, not a value"),
    (lambda: one_of(), r"one_of\(\) has no terms: it would match nothing\n  fix: give terms"),
    (lambda: Rule("r", relu(x), add(one_of(x, relu(x)), x)), "one_of is for patterns"),
    (lambda: Rule("r", functools.reduce(lambda term, _: relu(term), range(200), x), x),
        "nested deeper than 100"),
    (lambda: Rule("r", x, x), "rule 'r': a pattern is a call of an op"),
    (lambda: Rule("r", relu(x), add(x, y)), "the replacement has 'y', which the pattern lacks"),
    (lambda: Rule("r", add(x, attr("x")), x), "rule 'r': 'x' is a value, and plain data"),
])  # fmt: skip
def test_a_pattern_that_cannot_be_is_refused_where_it_is_written(make: Any, message: str) -> None:
    with pytest.raises(PassError, match=message):
        make()


def test_arguments_commute_in_whichever_order_they_are_stated() -> None:
    graph = capture(lambda a, b: a + b.neg(), *data())

    assert len(found(commutative(add(self=aten.neg.default(x), alpha=1, other=y)), graph)) == 1
    assert len(found(commutative(add(other=y, self=aten.neg.default(x))), graph)) == 1


def test_shared_calls_are_known_to_the_match() -> None:
    graph = capture(lambda a: (a.exp().relu(), a.exp()), *data(1))

    (match,) = found(relu(shared(aten.exp.default(x))), graph)

    assert {node.name for node in match.kept} == {"exp"}
