"""Effects of ops besides their outputs: purity, random numbers, views."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from npu_ir import Graph, OpNode, ScalarType, TensorType, register_executor
from npu_ir.ops import unregister_executor
from npu_ir.ops.effects import is_pure, is_random, is_view
from tests.support.rows import each_row

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


@each_row("node", {
    "elementwise": node_of("aten.relu.default", "self"),
    "several outputs": node_of("aten.max.dim", "self", outputs=2, dim=1),
    "view": node_of("aten.view.default", "self", size=[6]),
    "no inputs": node_of("aten.full.default", size=[2], fill_value=1),
    "function of numbers": node_of("operator.add", "a", b=1),
    "getitem": node_of("<built-in function getitem>", "a", b=1),
    "dropout in eval mode": node_of("aten.dropout.default", "input", p=0.5, train=False),
    "regions": cond_of("aten.relu.default"),
})  # fmt: skip
def test_an_op_that_only_computes_is_pure(node: OpNode) -> None:
    assert is_pure(node)
    assert not is_random(node)


@each_row("node", {
    "writes": node_of("aten.relu_.default", "self"),
    "assertion without outputs": node_of("aten._assert_async.msg", "self", outputs=0, assert_msg="no"),
    "assertion with a token": node_of("aten._functional_assert_async.msg", "self", "dep_token",
        assert_msg="no"),
    "random": node_of("aten.rand_like.default", "self"),
    "dropout": node_of("aten.dropout.default", "input", p=0.5, train=True),
    "unknown": node_of("nowhere.thing.default", "x"),
    "known to PyTorch": node_of("profiler._record_function_enter_new.default", name="x"),
    "operator without regions": node_of("higher_order.print", "x", format_str=""),
    "random region": cond_of("aten.rand_like.default"),
    "unknown op in a region": cond_of("nowhere.thing.default"),
})  # fmt: skip
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


@each_row("node, random", {
    "rand": (node_of("aten.rand.default", size=[2]), True),
    "bernoulli": (node_of("aten.bernoulli.p", "self", p=0.5), True),
    "dropout of nothing": (node_of("aten.dropout.default", "input", p=0.0, train=True), False),
    "dropout in eval mode": (node_of("aten.dropout.default", "input", p=0.5, train=False), False),
    "mode not told": (node_of("aten.native_dropout.default", "input", outputs=2, p=0.5, train=None), True),
    "off by default": (node_of("aten.rrelu.default", "self"), False),
    "switched on": (node_of("aten.rrelu.default", "self", training=True), True),
    "switched by a value of the graph": (node_of("aten.dropout.default", "input", "train", p=0.5), True),
    "attention": (node_of("aten.scaled_dot_product_attention.default", "query", "key", "value"), False),
    "attention with dropout": (node_of("aten.scaled_dot_product_attention.default", "query", "key", "value",
        dropout_p=0.1), True),
    "relu": (node_of("aten.relu.default", "self"), False),
    "in a region": (cond_of("aten.rand_like.default"), True),
    "nothing in a region": (cond_of("aten.relu.default"), False),
})  # fmt: skip
def test_an_op_is_random_unless_it_is_switched_off(node: OpNode, random: bool) -> None:
    assert is_random(node) is random


@each_row("node, view", {
    "view": (node_of("aten.view.default", "self", size=[6]), True),
    "transposed": (node_of("aten.t.default", "self"), True),
    "list of views": (node_of("aten.split.Tensor", "self", outputs=2, split_size=1), True),
    "perhaps the same": (node_of("aten.contiguous.default", "self"), True),
    "relu": (node_of("aten.relu.default", "self"), False),
    "function of numbers": (node_of("operator.add", "a", b=1), False),
    "unknown": (node_of("nowhere.thing.default", "x"), False),
    "regions": (cond_of("aten.relu.default"), False),
})  # fmt: skip
def test_a_view_is_what_the_schema_says_shares_memory(node: OpNode, view: bool) -> None:
    assert is_view(node) is view
