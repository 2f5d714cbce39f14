"""Patterns in graphs of all kinds: order, provenance, errors, regions, prologue."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from npu_ir import Graph, extract_ir
from npu_passes import PassError, PassManager
from npu_passes.core.edit import Edit
from npu_passes.patterns import Match, PatternPass, Rule, aten, attr, op, var
from npu_passes.testing import check_pass
from tests.support.corpus.case import Holding
from tests.support.passes.pattern_cases import (
    DOUBLE_NEG,
    F32,
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
    x,
    y,
)
from tests.support.registration import registered
from tests.support.rows import each_row
from tests.support.small_programs import program


def test_matches_that_overlap_are_replaced_one_after_the_other() -> None:
    def function(a: Tensor) -> Tensor:
        return a.neg().neg().neg().relu()

    result = run(capture(function, *data(1)), DOUBLE_NEG)

    assert op_types(result.graph) == ["neg.default", "relu.default"]
    assert_computes(result.graph, function, *data(1))


def test_the_first_rule_that_matches_is_applied() -> None:
    rules = Rule("first", neg(neg(x)), relu(x)), Rule("second", neg(x), aten.abs.default(x))

    result = run(capture(lambda a: (a.neg().neg(), a.neg()), *data(1)), *rules)

    # The inner negation comes first in the graph, so it is gone before the outer one is looked at.
    assert [rewrite.rule for rewrite in result.journal.rewrites] == ["second", "second", "second"]


def test_a_rule_that_makes_its_own_pattern_is_stopped() -> None:
    swap = Rule("swap", add(x, y), add(y, x))

    result = PassManager([pass_of(swap)], max_rounds=3).run(capture(torch.add, *data()))

    assert not result.converged
    assert len(result.journal.rewrites) == 3


def test_a_wrong_replacement_is_an_error_that_names_rule_and_node(subtests: pytest.Subtests) -> None:
    rows = [
        (aten.sum.default(x), r"%sum is f32\[\], it cannot stand for %relu"),
        (aten.isnan.default(x), r"%isnan is bool\[3, 4\], it cannot stand for"),
        (aten.matmul.default(x, x), "what aten.matmul.default returns on .* cannot be inferred"),
        (op("mylib.two")(op("mylib.one")(x)), "there is no operator mylib.one"),
        (lambda edit, match: None, "the replacement of %relu is None, not a value"),
        (lambda edit, match: (), "there are 0 replacements for 1 outputs"),
        (lambda edit, match: match["q"], "the pattern has no wildcard 'q'"),
    ]
    for replacement, message in rows:
        with subtests.test(replacement=replacement, message=message):
            graph = capture(torch.relu, *data(1))
            before = str(graph)

            with pytest.raises(PassError, match=f"sample: wrong failed: .*{message}") as caught:
                run(graph, Rule("wrong", relu(x), replacement))

            assert "'relu'" in str(caught.value)
            assert str(graph) == before


def test_a_replacement_keeps_the_memory_order() -> None:
    """What reads the result may be a view, which depends on it."""

    def function(a: Tensor, b: Tensor) -> Tensor:
        return torch.add(a.T, b.T).T.view(12)

    def contiguous(edit: Edit, match: Match) -> Any:
        return edit.call("aten.contiguous.default", edit.call("aten.add.Tensor", match["x"], match["y"]))

    graph = capture(function, *data())

    result = run(graph, Rule("contiguous", add(x, y), contiguous))

    types = {node.op_type: node.outputs[0].type for node in result.graph.nodes}
    assert types["aten.permute.default"] == graph.node("add").outputs[0].type
    assert_computes(result.graph, function, *data())


def test_a_memory_order_that_cannot_be_kept_is_an_error() -> None:
    graph = capture(lambda a: a[:1].expand(3, 4), *data(1))
    rule = Rule("copy", aten.expand.default(x, attr("size")), aten.expand_copy.default(x, attr("size")))

    with pytest.raises(
        PassError, match=r"the replacement is f32\[3, 4\], and %expand is .*: the strides differ"
    ):
        run(graph, rule)


def test_an_op_that_only_an_executor_knows_takes_the_place() -> None:
    def function(a: Tensor, b: Tensor) -> Tensor:
        return (a + b).relu()

    rule = Rule("add-relu", relu(add(x, y)), op("mylib.add_relu")(x, y))
    with registered("mylib.add_relu", lambda inputs, attrs: [function(*inputs)]):
        result = run(capture(function, *data()), rule)

        assert [node.op_type for node in result.graph.nodes] == ["mylib.add_relu"]
        assert_computes(result.graph, function, *data())


def test_an_op_that_only_an_executor_knows_and_a_random_one_are_replaced_and_go(
    subtests: pytest.Subtests,
) -> None:
    rows = [
        ("mylib.twice(%a)", Rule("twice", op("mylib.twice")(x), add(x, x)), "add.Tensor"),
        ("aten.dropout.default(input=%a) {p=0.5, train=True}",
            Rule("no-dropout", aten.dropout.default(x, attr("p"), True), relu(x)), "relu.default"),
    ]  # fmt: skip
    for call, rule, made in rows:
        with subtests.test(call):
            result = run(program(f"input %a: f32[2]\n%b: f32[2] = {call}\nreturn %b"), rule)

            assert op_types(result.graph) == [made]
            assert result.converged


def test_nodes_of_the_prologue_may_be_inside_of_a_match() -> None:
    model = Holding(lambda self, a: a @ self.weight.t(), weight=nn.Parameter(torch.randn(4, 4)))
    graph = extract_ir(model, (data(1)[0],))
    graph.move_to_prologue(graph.node("t"))

    result = run(graph, Rule("linear", aten.matmul.default(x, aten.t.default(y)), aten.linear.default(x, y)))

    assert op_types(result.graph) == ["linear.default"]
    assert not result.graph.prologue


def test_what_may_not_be_replaced_stays_with_a_reason(subtests: pytest.Subtests) -> None:
    no_copy = Rule("no-copy", aten.clone.default(x, ...), x)
    turned = torch.contiguous_format
    rows = [
        (lambda a: (a.clone(), a.exp().clone()), no_copy, ["clone.default", "exp.default"],
            "it is a result of the graph, and would share the memory of %args_0"),
        (lambda a: a.t().clone(memory_format=turned).view(-1), no_copy,
            ["t.default", "clone.default", "view.default"], "it is a copy of %t in other strides"),
        (lambda a: a.isnan() * 1.0, Rule("one", mul(x, 1), x), ["isnan.default", "mul.Tensor"],
            "the replacement %isnan is bool[3, 4], and %mul is f32[3, 4]"),
    ]  # fmt: skip
    for function, rule, ops, reason in rows:
        with subtests.test(reason):
            result = run(capture(function, *data(1)), rule)

            assert result.converged
            assert op_types(result.graph) == ops
            assert reasons(result) == [reason]


@each_row("rules, message", [
    ([DOUBLE_NEG], "Sample.rules is a tuple of rules"),
    ((neg(x),), "Sample.rules is a tuple of rules"),
    (DOUBLE_NEG, r"(?s)not .{,60}\n  fix: mind the comma .* rules = \(Rule\(\.\.\.\),\)"),
    ((DOUBLE_NEG, DOUBLE_NEG), "Sample has two rules called 'double-neg'"),
])  # fmt: skip
def test_rules_that_cannot_be_are_refused_with_the_class(rules: Any, message: str) -> None:
    with pytest.raises(PassError, match=message):
        type("Sample", (PatternPass,), {"name": "sample", "rules": rules})


def test_a_pattern_pass_keeps_the_promises_of_passes() -> None:
    graphs = [capture(lambda a: a.neg().neg().relu(), *data(1)), capture(torch.relu, *data(1))]

    assert check_pass(pass_of(DOUBLE_NEG), graphs) == 1


def test_a_value_that_many_read_costs_no_more_per_match() -> None:
    """The search is linear in the number of nodes: here every second node reads one and the same value."""
    graph = Graph("hub")
    a = graph.add_input("a", F32)
    hub = graph.insert("aten.relu.default", [a], types=F32).outputs[0]
    for _ in range(2000):
        last = graph.insert("aten.neg.default", [hub], types=F32).outputs[0]
    graph.set_outputs(last)

    class Counted(dict):  # type: ignore[type-arg]
        passes_over = 0

        def __iter__(self) -> Any:
            Counted.passes_over += 1
            return super().__iter__()

    hub._uses = Counted(hub._uses)

    assert not pass_of(Rule("neg-relu", neg(relu(x)), neg(x)))().run(graph)
    assert Counted.passes_over == 0


@each_row("pattern, where, message", [
    (relu(x), lambda match: True, "where= returned True"),
    (relu(x), lambda match: False, "where= returned False"),
    (relu(x), lambda match: match["y"], "the pattern has no wildcard 'y'"),
    (relu(x), lambda match: 1 / 0, "ZeroDivisionError: division by zero"),
    (relu(var("x", lambda value: value.nonsense)), None,
        "AttributeError: 'Value' object has no attribute 'nonsense'"),
    (relu(var("x", lambda value: None)), None, "where= of wildcard 'x' returned None"),
])  # fmt: skip
def test_a_wrong_condition_is_an_error_that_names_pass_rule_and_node(
    pattern: Any, where: Any, message: str
) -> None:
    graph = capture(torch.relu, *data(1))

    with pytest.raises(PassError, match=rf"sample: picky failed: {message}[\s\S]*at: node 'relu'"):
        run(graph, Rule("picky", pattern, aten.exp.default(x), where))
