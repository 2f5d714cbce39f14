"""Effects of ops besides their outputs: purity, random numbers, views."""

from __future__ import annotations

from typing import Any

import torch

from npu_ir import Graph, OpNode, ScalarType, TensorType
from npu_ir.ops.effects import is_pure, is_random, is_view
from tests.support.registration import registered
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


@each_row("node, effects", [
    (node_of("aten.relu.default", "self"), "pure"),
    (node_of("aten.max.dim", "self", outputs=2, dim=1), "pure"),
    (node_of("aten.full.default", size=[2], fill_value=1), "pure"),
    (node_of("operator.add", "a", b=1), "pure"),
    (node_of("<built-in function getitem>", "a", b=1), "pure"),
    (cond_of("aten.relu.default"), "pure"),
    (node_of("aten.view.default", "self", size=[6]), "pure view"),
    (node_of("aten.t.default", "self"), "pure view"),
    (node_of("aten.split.Tensor", "self", outputs=2, split_size=1), "pure view"),
    (node_of("aten.contiguous.default", "self"), "pure view"),
    (node_of("aten.relu_.default", "self"), ""),
    (node_of("aten._assert_async.msg", "self", outputs=0, assert_msg="no"), ""),
    (node_of("aten._functional_assert_async.msg", "self", "dep_token", assert_msg="no"), ""),
    (node_of("nowhere.thing.default", "x"), ""),
    (node_of("profiler._record_function_enter_new.default", name="x"), ""),
    (node_of("higher_order.print", "x", format_str=""), ""),
    (cond_of("nowhere.thing.default"), ""),
    (node_of("aten.rand.default", size=[2]), "random"),
    (node_of("aten.rand_like.default", "self"), "random"),
    (node_of("aten.bernoulli.p", "self", p=0.5), "random"),
    (cond_of("aten.rand_like.default"), "random"),
    (node_of("aten.dropout.default", "input", p=0.5, train=True), "random"),
    (node_of("aten.dropout.default", "input", p=0.0, train=True), "pure"),
    (node_of("aten.dropout.default", "input", p=0.5, train=False), "pure"),
    (node_of("aten.dropout.default", "input", "train", p=0.5), "random"),
    (node_of("aten.native_dropout.default", "input", outputs=2, p=0.5, train=None), "random"),
    (node_of("aten.rrelu.default", "self"), "pure"),
    (node_of("aten.rrelu.default", "self", training=True), "random"),
    (node_of("aten.scaled_dot_product_attention.default", "query", "key", "value"), "pure"),
    (node_of("aten.scaled_dot_product_attention.default", "query", "key", "value", dropout_p=0.1), "random"),
])  # fmt: skip
def test_the_effects_of_an_op_are_those_of_its_schema_unless_they_are_switched_off(
    node: OpNode, effects: str
) -> None:
    found = {"pure": is_pure(node), "random": is_random(node), "view": is_view(node)}

    assert {name for name, has_it in found.items() if has_it} == set(effects.split())


def test_a_custom_op_has_the_effects_that_its_schema_says() -> None:
    with torch.library._scoped_library("effects_test", "FRAGMENT") as library:
        library.define("pure(Tensor x) -> Tensor")
        library.define("writes(Tensor(a!) x) -> ()")
        library.define("rolls(Tensor x) -> Tensor", tags=(torch.Tag.nondeterministic_seeded,))

        pure = [is_pure(node_of(f"effects_test.{name}.default", "x")) for name in ("pure", "writes", "rolls")]

    assert pure == [True, False, False]


def test_an_op_known_only_by_its_executor_is_not_pure() -> None:
    with registered("effects_test_op", lambda inputs, attrs: [inputs[0]]):
        assert not is_pure(node_of("effects_test_op", "x"))
