"""Effects of ops besides their outputs: purity, random numbers, views."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from npu_ir import Graph, OpNode, ScalarType, TensorType, register_executor
from npu_ir.ops import unregister_executor
from npu_ir.ops.effects import is_pure, is_random, is_view

F32 = TensorType((2, 3), torch.float32)


def node_of(op_type: str, *operands: str, outputs: int = 1, **attrs: Any) -> OpNode:
    """Return a node whose operands all read one input."""
    graph = Graph()
    x = graph.add_input("x", F32)
    return graph.insert(op_type, [x] * len(operands), attrs, types=[F32] * outputs, operands=operands)


def cond_of(op_type: str) -> OpNode:
    """Return a condition with a node of ``op_type`` in both branches."""
    graph = Graph()
    branches = []
    for _ in range(2):
        branch = Graph("branch")
        inner = branch.insert(op_type, [branch.add_input("a", F32)], types=F32, operands=["self"])
        branch.set_outputs((inner.outputs[0],))
        branches.append(branch)
    return graph.insert(
        "higher_order.cond",
        [graph.add_input("pred", ScalarType("bool")), graph.add_input("x", F32)],
        {"operands": [None]},
        types=F32,
        operands=["pred", "operands[0]"],
        regions=dict(zip(("true_fn", "false_fn"), branches, strict=True)),
    )


@pytest.fixture
def ops() -> Iterator[None]:
    library = torch.library.Library("effects_test", "FRAGMENT")
    library.define("pure(Tensor x) -> Tensor")
    library.define("writes(Tensor(a!) x) -> ()")
    library.define("rolls(Tensor x) -> Tensor", tags=(torch.Tag.nondeterministic_seeded,))
    yield
    library._destroy()


@pytest.mark.parametrize(
    "node",
    [
        pytest.param(node_of("aten.relu.default", "self"), id="elementwise"),
        pytest.param(node_of("aten.max.dim", "self", outputs=2, dim=1), id="several outputs"),
        pytest.param(node_of("aten.view.default", "self", size=[6]), id="view"),
        pytest.param(node_of("aten.full.default", size=[2], fill_value=1), id="no inputs"),
        pytest.param(node_of("operator.add", "a", b=1), id="function of numbers"),
        pytest.param(node_of("<built-in function getitem>", "a", b=1), id="getitem"),
        pytest.param(node_of("aten.dropout.default", "input", p=0.5, train=False), id="dropout in eval mode"),
        pytest.param(cond_of("aten.relu.default"), id="regions"),
    ],
)
def test_an_op_that_only_computes_is_pure(node: OpNode) -> None:
    assert is_pure(node)
    assert not is_random(node)


@pytest.mark.parametrize(
    "node",
    [
        pytest.param(node_of("aten.relu_.default", "self"), id="writes"),
        pytest.param(
            node_of("aten._assert_async.msg", "self", outputs=0, assert_msg="no"),
            id="assertion without outputs",
        ),
        pytest.param(
            node_of("aten._functional_assert_async.msg", "self", "dep_token", assert_msg="no"),
            id="assertion with a token",
        ),
        pytest.param(node_of("aten.rand_like.default", "self"), id="random"),
        pytest.param(node_of("aten.dropout.default", "input", p=0.5, train=True), id="dropout"),
        pytest.param(node_of("nowhere.thing.default", "x"), id="unknown"),
        pytest.param(node_of("profiler._record_function_enter_new.default", name="x"), id="known to PyTorch"),
        pytest.param(node_of("higher_order.print", "x", format_str=""), id="operator without regions"),
        pytest.param(cond_of("aten.rand_like.default"), id="random region"),
        pytest.param(cond_of("nowhere.thing.default"), id="unknown op in a region"),
    ],
)
def test_an_op_that_does_more_or_is_unknown_is_not_pure(node: OpNode) -> None:
    assert not is_pure(node)


def test_a_custom_op_is_pure_as_its_schema_says(ops: None) -> None:
    assert is_pure(node_of("effects_test.pure.default", "x"))
    assert not is_pure(node_of("effects_test.writes.default", "x"))
    assert not is_pure(node_of("effects_test.rolls.default", "x"))


def test_an_op_known_only_by_its_executor_is_not_pure() -> None:
    register_executor("effects_test_op")(lambda inputs, attrs: [inputs[0]])

    pure = is_pure(node_of("effects_test_op", "x"))

    unregister_executor("effects_test_op")
    assert not pure


@pytest.mark.parametrize(
    ("node", "random"),
    [
        pytest.param(node_of("aten.rand.default", size=[2]), True, id="rand"),
        pytest.param(node_of("aten.bernoulli.p", "self", p=0.5), True, id="bernoulli"),
        pytest.param(node_of("aten.dropout.default", "input", p=0.5, train=True), True, id="dropout"),
        pytest.param(
            node_of("aten.dropout.default", "input", p=0.0, train=True), False, id="dropout of nothing"
        ),
        pytest.param(
            node_of("aten.dropout.default", "input", p=0.5, train=False), False, id="dropout in eval mode"
        ),
        pytest.param(
            node_of("aten.native_dropout.default", "input", outputs=2, p=0.5, train=None),
            True,
            id="mode not told",
        ),
        pytest.param(node_of("aten.rrelu.default", "self"), False, id="off by default"),
        pytest.param(node_of("aten.rrelu.default", "self", training=True), True, id="switched on"),
        pytest.param(
            node_of("aten.dropout.default", "input", "train", p=0.5),
            True,
            id="switched by a value of the graph",
        ),
        pytest.param(
            node_of("aten.scaled_dot_product_attention.default", "query", "key", "value"),
            False,
            id="attention",
        ),
        pytest.param(
            node_of("aten.scaled_dot_product_attention.default", "query", "key", "value", dropout_p=0.1),
            True,
            id="attention with dropout",
        ),
        pytest.param(node_of("aten.relu.default", "self"), False, id="relu"),
        pytest.param(node_of("nowhere.thing.default", "x"), False, id="unknown"),
        pytest.param(cond_of("aten.rand_like.default"), True, id="in a region"),
        pytest.param(cond_of("aten.relu.default"), False, id="nothing in a region"),
    ],
)
def test_an_op_is_random_unless_it_is_switched_off(node: OpNode, random: bool) -> None:
    assert is_random(node) is random


@pytest.mark.parametrize(
    ("node", "view"),
    [
        pytest.param(node_of("aten.view.default", "self", size=[6]), True, id="view"),
        pytest.param(node_of("aten.t.default", "self"), True, id="transposed"),
        pytest.param(node_of("aten.split.Tensor", "self", outputs=2, split_size=1), True, id="list of views"),
        pytest.param(node_of("aten.contiguous.default", "self"), True, id="perhaps the same"),
        pytest.param(node_of("aten.relu.default", "self"), False, id="relu"),
        pytest.param(node_of("aten.relu_.default", "self"), False, id="writes"),
        pytest.param(node_of("operator.add", "a", b=1), False, id="function of numbers"),
        pytest.param(node_of("nowhere.thing.default", "x"), False, id="unknown"),
        pytest.param(cond_of("aten.relu.default"), False, id="regions"),
    ],
)
def test_a_view_is_what_the_schema_says_shares_memory(node: OpNode, view: bool) -> None:
    assert is_view(node) is view
