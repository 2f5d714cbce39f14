"""Matches of patterns are replaced: in the same terms, once, and without changing types."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from npu_ir import extract_ir
from npu_passes import PassManager
from npu_passes.core.edit import Edit
from npu_passes.patterns import (
    Match,
    Rule,
    aten,
    attr,
    commutative,
    output,
    shared,
)
from tests.support.corpus.case import Function
from tests.support.passes.pattern_cases import (
    DOUBLE_NEG,
    add,
    assert_computes,
    capture,
    data,
    mul,
    neg,
    op_types,
    pass_of,
    reasons,
    relu,
    run,
    sub,
    x,
    y,
)


def test_a_call_takes_the_place_of_a_pattern() -> None:
    def function(a: Tensor, b: Tensor) -> Tensor:
        return a + b.neg()

    graph = capture(function, *data())

    result = run(graph, Rule("sub", commutative(add(x, neg(y))), sub(x, y)))

    assert op_types(result.graph) == ["sub.Tensor"]
    assert_computes(result.graph, function, *data())


@pytest.mark.smoke
def test_a_wildcard_takes_the_place_of_a_pattern() -> None:
    graph = capture(lambda a: a.neg().neg().relu(), *data(1))

    result = run(graph, DOUBLE_NEG)

    assert op_types(result.graph) == ["relu.default"]
    assert_computes(result.graph, torch.relu, *data(1))


def test_results_stay_tensors_of_their_own(subtests: pytest.Subtests) -> None:
    rows = {
        "an input": (lambda a: a.neg().neg(), ["clone.default"]),
        "a view of an input": (lambda a: a.neg().neg().view(12), ["clone.default", "view.default"]),
        "two": (lambda a: (lambda e: (e, e.neg().neg()))(a.exp()), ["exp.default", "clone.default"]),
        "of a view of an input": (lambda a: a.t().neg().neg(), ["t.default", "clone.default"]),
        "a tensor of its own": (lambda a: a.exp().neg().neg(), ["exp.default"]),
        "no result": (lambda a: a.neg().neg().exp(), ["exp.default"]),
    }
    for case, (function, ops) in rows.items():
        with subtests.test(case):
            result = run(capture(function, *data(1)), DOUBLE_NEG)

            assert op_types(result.graph) == ops
            assert_computes(result.graph, function, *data(1))


def test_a_view_that_takes_the_place_of_a_result_is_copied() -> None:
    rule = Rule("turn", aten.t.default(relu(x)), relu(aten.t.default(x)))
    to_view = Rule("view", aten.exp.default(x), aten.t.default(aten.t.default(x)))

    computed, viewed = (
        run(capture(lambda a: a.relu().t(), *data(1)), rule),
        run(capture(torch.exp, *data(1)), to_view),
    )

    assert op_types(computed.graph) == ["t.default", "relu.default"]
    assert op_types(viewed.graph) == ["t.default", "t.default", "clone.default"]


def test_bound_data_goes_into_the_replacement() -> None:
    def function(a: Tensor, b: Tensor) -> Tensor:
        return a + b * 3

    graph = capture(function, *data())

    result = run(graph, Rule("alpha", add(x, mul(y, attr("c"))), add(x, y, alpha=attr("c"))))

    assert [dict(node.attrs) for node in result.graph.nodes] == [{"alpha": 3}]
    assert_computes(result.graph, function, torch.ones(3, 4), torch.ones(3, 4))


def test_nested_calls_lists_and_defaults_are_made() -> None:
    def function(a: Tensor, b: Tensor) -> Tensor:
        return torch.cat([a, b], 1).relu()

    graph = capture(function, *data())
    inside = aten.cat.default([relu(x), relu(y)], attr("dim"))

    result = run(graph, Rule("relu-first", relu(aten.cat.default([x, y], attr("dim"))), inside))

    assert op_types(result.graph) == ["relu.default", "relu.default", "cat.default"]
    assert_computes(result.graph, function, *data())


def test_arguments_that_are_left_out_between_others_are_as_by_default() -> None:
    graph = capture(lambda a: a.sum(), *data(1))

    result = run(
        graph, Rule("to-dim", aten.sum.default(x), aten.sum.dim_IntList(x, [0, 1], dtype=torch.float32))
    )

    assert_computes(result.graph, torch.sum, torch.ones(3, 4))


def test_a_call_that_is_there_twice_becomes_one_node() -> None:
    exp = aten.exp.default(x)
    graph = capture(lambda a: a.tanh(), *data(1))

    result = run(graph, Rule("silly", aten.tanh.default(x), aten.div.Tensor(exp, add(exp, 1))))

    assert op_types(result.graph) == ["exp.default", "add.Tensor", "div.Tensor"]


def test_a_function_makes_what_terms_cannot_say() -> None:
    def doubled(edit: Edit, match: Match) -> Any:
        return edit.call("aten.mul.Tensor", match["x"], 2 * match["c"])

    graph = capture(lambda a: a * 3, *data(1))

    result = PassManager([pass_of(Rule("double", mul(x, attr("c", lambda c: c == 3)), doubled))]).run(graph)

    assert [dict(node.attrs) for node in result.graph.nodes] == [{"other": 6}]


def test_what_a_function_reads_of_the_match_stays() -> None:
    def exponential(edit: Edit, match: Match) -> Any:
        return edit.call("aten.exp.default", match.root.inputs[0])

    result = run(capture(lambda a: a.neg().relu(), *data(1)), Rule("exp", relu(neg(x)), exponential))

    assert op_types(result.graph) == ["neg.default", "exp.default"]


def test_a_tuple_takes_the_place_of_all_outputs() -> None:
    def function(a: Tensor) -> tuple[Tensor, ...]:
        return a.split(2, dim=1)

    pattern = aten.split.Tensor(x, 2, 1)
    halves = aten.slice.Tensor(x, 1, 0, 2), aten.slice.Tensor(x, 1, 2, 4)

    result = run(capture(function, *data(1)), Rule("slices", pattern, halves))

    assert op_types(result.graph) == ["slice.Tensor", "slice.Tensor"]
    assert_computes(result.graph, function, *data(1))


def test_an_output_of_the_replacement_is_chosen() -> None:
    graph = capture(lambda a: a.amax(1), *data(1))

    result = run(graph, Rule("max", aten.amax.default(x, [1]), output(aten.max.dim(x, 1), 0)))

    assert op_types(result.graph) == ["max.dim"]
    assert_computes(result.graph, lambda a: a.amax(1), *data(1))


def test_an_output_that_is_not_replaced_must_not_be_read() -> None:
    rule = Rule("amax", aten.max.dim(x, 1), aten.amax.default(x, [1]))
    both, first = capture(lambda a: a.max(1), *data(1)), capture(lambda a: a.max(1).values, *data(1))

    refused, made = run(both, rule), run(first, rule)

    assert reasons(refused) == ["its output %max_1.indices is read, too"]
    assert op_types(made.graph) == ["amax.default"]


class _Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("state", torch.zeros(3, 4))

    def forward(self, a: Tensor) -> Tensor:
        kept = a.neg()
        self.state = kept
        return kept.neg()


def test_what_is_inside_a_match_is_read_by_nothing_else(subtests: pytest.Subtests) -> None:
    rows = {
        "another node": Function(lambda a: (lambda n: (n.neg(), n.exp()))(a.neg())),
        "the results of the graph": Function(lambda a: (lambda n: (n.neg(), n))(a.neg())),
        "an update of a buffer": _Counter(),
    }
    for case, model in rows.items():
        with subtests.test(case):
            graph = extract_ir(model, (data(1)[0],))

            result = run(graph, DOUBLE_NEG)

            assert str(result.graph) == str(graph)
            assert reasons(result) == ["%neg is read elsewhere, too"]


def test_what_is_shared_may_be_read_elsewhere_and_stays() -> None:
    def function(a: Tensor) -> tuple[Tensor, Tensor]:
        once = a.neg()
        return once.neg().relu(), once

    result = run(capture(function, *data(1)), Rule("double-neg", neg(shared(neg(x))), x))

    assert sorted(op_types(result.graph)) == ["neg.default", "relu.default"]
    assert_computes(result.graph, function, *data(1))


def test_what_is_shared_goes_where_nothing_else_reads_it() -> None:
    graph = capture(lambda a: a.neg().neg().relu(), *data(1))

    result = run(graph, Rule("double-neg", neg(shared(neg(x))), x))

    assert op_types(result.graph) == ["relu.default"]


def test_what_a_shared_node_that_stays_reads_is_read_elsewhere() -> None:
    def function(a: Tensor) -> tuple[Tensor, Tensor]:
        once = a.abs().neg()
        return once.relu(), once

    graph = capture(function, *data(1))

    result = run(graph, Rule("zero", relu(shared(neg(aten.abs.default(x)))), sub(x, x)))

    assert str(result.graph) == str(graph)
    assert reasons(result) == ["%abs_1 is read elsewhere, too"]


def test_a_reason_to_refuse_is_kept() -> None:
    rule = Rule("double-neg", neg(neg(x)), x, where=lambda match: "not today")

    result = run(capture(lambda a: a.neg().neg(), *data(1)), rule)

    (refusal,) = result.journal.refusals
    assert (refusal.pass_name, refusal.rule, refusal.node, refusal.reason) == (
        "sample",
        "double-neg",
        "neg_1",
        "not today",
    )


def test_of_two_orders_the_one_that_is_not_refused_is_taken() -> None:
    rule = Rule(
        "sub",
        commutative(add(mul(x, attr("c")), mul(y, attr("d")))),
        mul(add(x, y), attr("c")),
        where=lambda match: None if match["c"] == 2 else "it is not 2",
    )

    result = run(capture(lambda a, b: a * 3 + b * 2, *data()), rule)

    assert op_types(result.graph) == ["add.Tensor", "mul.Tensor"]
