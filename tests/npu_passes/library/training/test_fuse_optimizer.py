"""fuse-optimizer: what an optimizer computes is one op per list of parameters, and moves them as far."""

import itertools
import re
from typing import Any

import pytest
import torch
from torch import nn, optim

from npu_ir import Graph, OpNode, Value
from npu_passes import Checked, PassManager, PassResult, parse_passes
from npu_passes.library.training.fuse_optimizer import FuseOptimizer
from npu_passes.ops.training import ADAM_STEP, SGD_STEP
from npu_passes.testing import check_pass
from tests.support.corpus.case import Holding
from tests.support.passes.pattern_cases import reasons
from tests.support.passes.training_graphs import (
    KINDS,
    MINIMAL,
    data_of,
    maker,
    model,
    ops,
    step_graph,
    traced,
)
from tests.support.rows import each_row
from tests.support.small_programs import program
from tests.support.tiers import some

ADAM = [kind for kind in KINDS if kind.startswith("adam")]
SGD = [kind for kind in KINDS if kind.startswith("sgd")]


def run(graph: Graph) -> PassResult:
    return PassManager([FuseOptimizer()]).run(graph)


def steps(graph: Graph) -> list[OpNode]:
    return list(graph.nodes_of(ADAM_STEP, SGD_STEP))


def optimizer_ops(graph: Graph) -> list[str]:
    return [op for op in ops(graph) if op.startswith(("aten._foreach_", "operator."))]


def test_an_optimizer_becomes_one_op_in_whatever_form_other_passes_leave_it(
    subtests: pytest.Subtests,
) -> None:
    before = [
        MINIMAL,
        "canonicalize,elim-identity,dead-code",
        f"lower-foreach,{MINIMAL}",
        f"{MINIMAL},constant-folding",
    ]
    for kind, passes in some(list(itertools.product(KINDS, before)), 11):
        with subtests.test(kind=kind, passes=passes):
            graph = step_graph(kind, passes=passes)

            assert check_pass(FuseOptimizer, graph, data=data_of(graph)) == 1
            result = run(graph)
            assert [node.op_type for node in steps(result.graph)] == [ADAM_STEP if kind in ADAM else SGD_STEP]
            assert optimizer_ops(result.graph) == []
            assert reasons(result) == []


def test_the_op_takes_what_the_optimizer_was_given() -> None:
    (node,) = steps(run(step_graph("adamw, all")).graph)

    names = [value.name for value in node.inputs]
    assert names[:8] == [
        *("0.weight", "0.bias", "2.weight", "2.bias"),
        *("0_weight_grad", "0_bias_grad", "2_weight_grad", "2_bias_grad"),
    ]
    numbers = dict(zip(node.operands or (), names, strict=True))
    assert {name: numbers[name] for name in ("lr", "beta1", "beta2", "eps", "weight_decay")} == {
        "lr": "group0.lr",
        "beta1": "group0.betas.0",
        "beta2": "group0.betas.1",
        "eps": "group0.eps",
        "weight_decay": "group0.weight_decay",
    }
    assert [node.attrs[name] for name in ("decoupled", "amsgrad", "maximize")] == [True] * 3


def test_groups_of_parameters_have_a_step_each() -> None:
    net = model()
    groups: list[dict[str, Any]] = [
        {"params": net[0].parameters()},
        {"params": net[2].parameters(), "lr": 0.1, "betas": (0.5, 0.6)},
    ]
    graph = cleaned(traced(lambda _: optim.Adam(groups, lr=0.01), net))

    assert check_pass(FuseOptimizer, graph, data=data_of(graph)) == 1
    found = steps(run(graph).graph)
    assert [len(node.outputs) for node in found] == [8, 8]
    assert [node.inputs[-4].name for node in found] == ["group0.lr", "group1.lr"]


def test_parameters_of_two_dtypes_are_one_list() -> None:
    layers = {"first": nn.Linear(7, 5), "second": nn.Linear(5, 3).to(torch.float64)}
    two_dtypes = Holding(lambda self, x: self.second(self.first(x).double()).float(), **layers)
    graph = cleaned(traced(maker("adamw"), two_dtypes))

    assert check_pass(FuseOptimizer, graph, data=data_of(graph)) == 1
    assert [len(node.outputs) for node in steps(run(graph).graph)] == [16]


def test_parameters_without_a_gradient_are_in_no_step() -> None:
    net = model()
    net[0].weight.requires_grad_(False)

    graph = run(cleaned(traced(maker("sgd, momentum"), net))).graph

    assert [value.name for value in steps(graph)[0].inputs[:3]] == ["0.bias", "2.weight", "2.bias"]


def test_coarse_parameters_move_within_the_tolerance_of_their_dtype() -> None:
    graph = step_graph("adamw, all", dtype=torch.bfloat16)

    assert check_pass(FuseOptimizer, graph, data=data_of(graph)) == 1


def test_hyperparameters_may_be_plain_numbers() -> None:
    graph = step_graph("adamw, all")
    fixed = {"lr": 0.01, "betas.0": 0.9, "betas.1": 0.99, "eps": 1e-6, "weight_decay": 0.1}
    for name, number in fixed.items():
        put_number(graph, graph.value(f"group0.{name}"), number)
    graph = cleaned(graph)

    assert check_pass(FuseOptimizer, graph, data=data_of(graph)) == 1
    (node,) = steps(run(graph).graph)
    assert node.attrs["weight_decay"] == pytest.approx(0.1)
    assert [node.attrs[name] for name in ("lr", "beta1", "eps")] == [0.01, 0.9, 1e-6]


def put_number(graph: Graph, value: Value, number: float) -> None:
    """Make the graph one for a fixed hyperparameter."""
    for node, slot in sorted(value.uses, key=lambda use: -int(str(use[1]))):
        assert isinstance(slot, int)
        graph.set_literal(node, slot, number)
    graph.fix_input(value, number)


def cleaned(graph: Graph) -> Graph:
    return PassManager(parse_passes(MINIMAL)).run(graph).graph


def returns_the_denominator(graph: Graph) -> None:
    graph.set_outputs(list(graph.nodes_of("aten._foreach_sqrt.default"))[-1].outputs[0])


def reads_the_moment_early(graph: Graph) -> None:
    (mean,) = graph.nodes_of("aten._foreach_lerp.Scalar")
    (value, *_) = mean.outputs
    made = graph.insert("aten.neg.default", [value], types=value.type, after=mean, name="early")
    graph.set_outputs(made.outputs[0])


@each_row("edit, reason", [
    (returns_the_denominator, r"%_foreach_sqrt\S* is read by the results, too"),
    (reads_the_moment_early, r"%_foreach_lerp\.0 is read by 'early' before the whole step is done"),
])  # fmt: skip
def test_a_step_that_something_else_needs_stays(edit: Any, reason: str) -> None:
    graph = step_graph("adam")
    edit(graph)

    result = run(graph)

    assert steps(result.graph) == []
    (found,) = reasons(result)
    assert re.fullmatch(reason, found)


def with_another_input(kind: str, op: str, slot: int, name: str) -> Graph:
    """Return a step in which the last node of an op reads something else."""
    graph = step_graph(kind)
    node = list(graph.nodes_of(op))[-1 if slot else 0]
    graph.set_input(node, slot % len(node.inputs), graph.value(name))
    return graph


def test_what_is_not_quite_adam_stays(subtests: pytest.Subtests) -> None:
    by_two = step_graph("adam")
    counters = next(by_two.nodes_of("aten._foreach_add.Scalar"))
    by_two.set_attrs(counters, {**counters.attrs, "scalar": 2})
    rows = {
        "beta": with_another_input("adam", "aten._foreach_pow.ScalarAndTensor", 0, "group0.eps"),
        "gradient": with_another_input("adam", "aten._foreach_addcmul.Scalar", 4, "0.weight.exp_avg"),
        "counters": by_two,
    }
    for case, graph in rows.items():
        with subtests.test(case):
            assert check_pass(FuseOptimizer, graph, data=data_of(graph)) == 0


def test_weight_decay_by_another_rate_than_the_steps_is_no_adamw() -> None:
    graph = with_another_input("adamw", "aten._foreach_div.Scalar", -1, "group0.eps")

    found = steps(run(graph).graph)

    assert [node.attrs["decoupled"] for node in found] == [False]


def test_other_optimizers_stay(subtests: pytest.Subtests) -> None:
    averaging = [optim.NAdam, optim.RAdam, optim.Adamax, optim.ASGD]
    for optimizer in [*averaging, optim.Adadelta, optim.RMSprop, optim.Adagrad, optim.Rprop]:
        with subtests.test(optimizer=optimizer):
            graph = cleaned(traced(optimizer, model()))  # type: ignore[arg-type]

            assert run(graph).graph == graph
            assert optimizer_ops(graph) != []


def test_a_sum_that_moves_no_parameter_is_no_step() -> None:
    graph = program("""
        input %x: f32[2, 3]
        input %y: f32[2, 3]
        %out.0: f32[2, 3] = aten._foreach_add.List(self=[%x], other=[%y]) {alpha=-0.5}
        return %out.0
    """)

    assert not FuseOptimizer().run(graph)


def test_two_steps_in_one_graph_are_two_ops() -> None:
    graph = program("""
        input %lr: float
        input %gradient: f32[2, 3]
        param %weight: f32[2, 3]
        call (%lr, %gradient)
        %neg: float = operator.neg(a=%lr)
        %once.0: f32[2, 3] = aten._foreach_add.List(self=[%weight], other=[%gradient], alpha=%neg)
        %sin: f32[2, 3] = aten.sin.default(self=%once.0)
        %twice.0: f32[2, 3] = aten._foreach_add.List(self=[%once.0], other=[%sin], alpha=%neg)
        update %weight = %twice.0
        return ()
    """)
    data = Checked(calls=[((0.1, torch.ones(2, 3)), {})])

    assert check_pass(FuseOptimizer, graph, data=data) == 1
    assert ops(run(graph).graph) == [SGD_STEP, "aten.sin.default", SGD_STEP]


def test_tensors_of_several_dtypes_are_no_step() -> None:
    graph = program("""
        input %lr: float
        input %gradient: f64[2, 3]
        param %weight: f32[2, 3]
        call (%lr, %gradient)
        %neg: float = operator.neg(a=%lr)
        %new.0: f64[2, 3] = aten._foreach_add.List(self=[%weight], other=[%gradient], alpha=%neg)
        return %new.0
    """)

    assert reasons(run(graph)) == ["%gradient is f64[2, 3], and %weight is f32[2, 3]"]
