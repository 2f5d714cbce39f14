"""Matches of patterns are replaced: in the same terms, once, and without changing types."""

from typing import Any

import pytest
import torch
from torch import Tensor

from npu_ir import execute_ir, extract_ir
from npu_passes import PassManager
from npu_passes.core.edit import Edit
from npu_passes.patterns import Match, Rule, aten, attr, commutative, one_of, output, shared, var
from tests.support.corpus.case import Holding
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
from tests.support.rows import each_row


def exponential(edit: Edit, match: Match) -> Any:
    return edit.call("aten.exp.default", match.root.inputs[0])


ONCE_MORE = Rule("double-neg", neg(shared(neg(x))), x)
EXP = aten.exp.default(x)
REPLACEMENTS = {
    "a call": (lambda a, b: a + b.neg(), Rule("sub", commutative(add(x, neg(y))), sub(x, y)), ["sub.Tensor"]),
    "a wildcard": (lambda a: a.neg().neg().relu(), DOUBLE_NEG, ["relu.default"]),
    "nested calls and a list": (
        lambda a, b: torch.cat([a, b], 1).relu(),
        Rule(
            "relu-first",
            relu(aten.cat.default([x, y], attr("dim"))),
            aten.cat.default([relu(x), relu(y)], attr("dim")),
        ),
        ["relu.default", "relu.default", "cat.default"],
    ),
    "an argument behind one that is left out": (lambda a: a.sum(),
        Rule("to-dim", aten.sum.default(x), aten.sum.dim_IntList(x, [0, 1], dtype=torch.float32)),
        ["sum.dim_IntList"]),
    "a call that is there twice": (lambda a: a.sigmoid(),
        Rule("written", aten.sigmoid.default(x), aten.div.Tensor(EXP, add(EXP, 1))),
        ["exp.default", "add.Tensor", "div.Tensor"]),
    "what a function reads of the match": (lambda a: a.neg().relu(), Rule("exp", relu(neg(x)), exponential),
        ["neg.default", "exp.default"]),
    "a tuple for all outputs": (
        lambda a: a.split(2, dim=1),
        Rule(
            "slices",
            aten.split.Tensor(x, 2, 1),
            (aten.slice.Tensor(x, 1, 0, 2), aten.slice.Tensor(x, 1, 2, 4)),
        ),
        ["slice.Tensor", "slice.Tensor"],
    ),
    "an output": (lambda a: a.amax(1), Rule("max", aten.amax.default(x, [1]), output(aten.max.dim(x, 1), 0)),
        ["max.dim"]),
    "what is shared and read elsewhere": (lambda a: (lambda once: (once, once.neg().relu()))(a.neg()),
        ONCE_MORE, ["neg.default", "relu.default"]),
    "what is shared and read by nothing else": (lambda a: a.neg().neg().relu(), ONCE_MORE, ["relu.default"]),
    "the order that is not refused": (
        lambda a, b: a * 3 + b * 2,
        Rule(
            "sub",
            commutative(add(mul(x, attr("c")), mul(y, attr("d")))),
            sub(mul(x, 2), mul(y, -3)),
            where=lambda match: None if match["c"] == 2 else "it is not 2",
        ),
        ["mul.Tensor", "mul.Tensor", "sub.Tensor"],
    ),
    "a view of what is made": (lambda a: a.relu().t(),
        Rule("turn", aten.t.default(relu(x)), relu(aten.t.default(x))), ["t.default", "relu.default"]),
    "a view, which is copied": (lambda a: a.exp(), Rule("view", EXP, aten.t.default(aten.t.default(x))),
        ["t.default", "t.default", "clone.default"]),
}  # fmt: skip
NOT_EQUAL = ("what a function reads of the match", "a view, which is copied")


@pytest.mark.smoke
@each_row("case, function, rule, ops", [(case, *row) for case, row in REPLACEMENTS.items()])
def test_a_replacement_takes_the_place_of_a_pattern(case: str, function: Any, rule: Any, ops: Any) -> None:
    args = data(function.__code__.co_argcount)

    result = run(capture(function, *args), rule)

    assert op_types(result.graph) == ops
    if case not in NOT_EQUAL:
        torch.testing.assert_close(execute_ir(result.graph, args), function(*args))


@each_row("function, ops", {
    "an input": (lambda a: a.neg().neg(), ["clone.default"]),
    "a view of an input": (lambda a: a.neg().neg().view(12), ["clone.default", "view.default"]),
    "two": (lambda a: (lambda e: (e, e.neg().neg()))(a.exp()), ["exp.default", "clone.default"]),
    "of a view of an input": (lambda a: a.t().neg().neg(), ["t.default", "clone.default"]),
    "a tensor of its own": (lambda a: a.exp().neg().neg(), ["exp.default"]),
    "no result": (lambda a: a.neg().neg().exp(), ["exp.default"]),
})  # fmt: skip
def test_results_stay_tensors_of_their_own(function: Any, ops: Any) -> None:
    result = run(capture(function, *data(1)), DOUBLE_NEG)

    assert op_types(result.graph) == ops
    assert_computes(result.graph, function, *data(1))


def test_bound_data_goes_into_the_replacement() -> None:
    def function(a: Tensor, b: Tensor) -> Tensor:
        return a + b * 3

    graph = capture(function, *data())

    result = run(graph, Rule("alpha", add(x, mul(y, attr("c"))), add(x, y, alpha=attr("c"))))

    assert [dict(node.attrs) for node in result.graph.nodes] == [{"alpha": 3}]
    assert_computes(result.graph, function, torch.ones(3, 4), torch.ones(3, 4))


def test_a_function_makes_what_terms_cannot_say() -> None:
    def doubled(edit: Edit, match: Match) -> Any:
        return edit.call("aten.mul.Tensor", match["x"], 2 * match["c"])

    graph = capture(lambda a: a * 3, *data(1))

    result = PassManager([pass_of(Rule("double", mul(x, attr("c", lambda c: c == 3)), doubled))]).run(graph)

    assert [dict(node.attrs) for node in result.graph.nodes] == [{"other": 6}]


def test_an_output_that_is_not_replaced_must_not_be_read() -> None:
    rule = Rule("amax", aten.max.dim(x, 1), aten.amax.default(x, [1]))
    both, first = capture(lambda a: a.max(1), *data(1)), capture(lambda a: a.max(1).values, *data(1))

    refused, made = run(both, rule), run(first, rule)

    assert reasons(refused) == ["its output %max_1.indices is read, too"]
    assert op_types(made.graph) == ["amax.default"]


def updates_a_buffer(self: Any, a: Tensor) -> Tensor:
    kept = a.neg()
    self.state = kept
    return kept.neg()


def test_what_is_inside_a_match_is_read_by_nothing_else(subtests: pytest.Subtests) -> None:
    zero = Rule("zero", relu(shared(neg(aten.abs.default(x)))), sub(x, x))
    rows = {
        "another node": (lambda _, a: (lambda n: (n.neg(), n.exp()))(a.neg()), DOUBLE_NEG, "neg"),
        "the results": (lambda _, a: (lambda n: (n.neg(), n))(a.neg()), DOUBLE_NEG, "neg"),
        "an update of a buffer": (updates_a_buffer, DOUBLE_NEG, "neg"),
        "what stays": (lambda _, a: (lambda once: (once.relu(), once))(a.abs().neg()), zero, "abs_1"),
    }
    for case, (function, rule, name) in rows.items():
        with subtests.test(case):
            graph = extract_ir(Holding(function, state=torch.zeros(3, 4)), (data(1)[0],))

            result = run(graph, rule)

            assert str(result.graph) == str(graph)
            assert reasons(result) == [f"%{name} is read elsewhere, too"]


@each_row("function, pattern, message", {
    "an argument that is not stated": (
        lambda a, b: torch.nn.functional.linear(a, b, b[:, 0]), aten.linear.default(x, y),
        "linear: bias is %select, the pattern has None (leave it open with ...)",
    ),
    "a number": (
        lambda a, b: a.softmax(0) + b, aten.softmax.int(x, 1), "softmax: dim is 0, the pattern has 1",
    ),
    "a value": (
        lambda a, b: a + 2, add(x, attr("number")), None,
    ),
    "data in place of a value": (
        lambda a, b: a + 2, commutative(add(relu(x), y)), None,
    ),
    "two arguments": (lambda a, b: torch.add(a, b, alpha=2).softmax(0), aten.softmax.int(add(x, y), 1), None),
    "inside, in either order": (
        lambda a, b: b + a.softmax(0), commutative(add(aten.softmax.int(x, 1), y)),
        "softmax: dim is 0, the pattern has 1",
    ),
    "a list": (
        lambda a, b: torch.sum(a, [0]) + b, aten.sum.dim_IntList(x, [1]),
        "sum: dim is [0], the pattern has [1]",
    ),
    "a predicate": (lambda a, b: a.softmax(0), aten.softmax.int(var("x", lambda _: False), 0), None),
})  # fmt: skip
def test_a_pattern_that_one_argument_keeps_from_matching_says_which(
    function: Any, pattern: Any, message: str | None
) -> None:
    graph = capture(function, *data())

    result = run(graph, Rule("odd", pattern, x))

    found = [text for text in reasons(result) if "the pattern has" in text]
    assert found == ([] if message is None else [message])


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


def test_a_rule_is_tried_only_where_the_graph_has_every_op_of_its_pattern() -> None:
    looks: list[Any] = []
    seen = var("y", where=lambda item: looks.append(item) is not None)
    rule = Rule("minus", sub(one_of(EXP, neg(aten.exp.default(x))), seen), x)

    run(capture(lambda x, y: x.relu() - y, *data()), rule)
    without = list(looks)
    run(capture(lambda x, y: x.exp() - y, *data()), rule)

    assert without == []
    assert len(looks) > 0


def test_a_rule_is_tried_where_another_rule_has_made_an_op_of_its_pattern() -> None:
    first = Rule("silu", aten.relu.default(x), aten.silu.default(x))
    second = Rule("minus", aten.mul.Tensor(aten.silu.default(x), var("y")), aten.sub.Tensor(x, var("y")))

    graph = capture(lambda x, y: x.relu() * y, *data())
    result = PassManager(pass_of(first, second), max_rounds=1).run(graph)

    assert op_types(result.graph) == ["sub.Tensor"]
