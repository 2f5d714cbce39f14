"""Queries of passes about nodes and values: arguments by name, weights, operations."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as fn

from npu_ir import Graph, Value, extract_ir
from npu_passes import PassError, is_weight
from npu_passes.manager.statistics import FlopCounter
from npu_passes.rewriting.arguments import arguments_of, number_of
from tests.support.corpus.case import Function, Holding
from tests.support.rows import each_row
from tests.support.small_programs import program


def captured(function: Any, *args: torch.Tensor) -> Graph:
    return extract_ir(Function(function), args, name="g")


@pytest.mark.smoke
def test_arguments_have_the_names_of_the_schema() -> None:
    graph = captured(lambda x, w: fn.conv2d(x, w, stride=2), torch.ones(1, 2, 5, 5), torch.ones(3, 2, 1, 1))
    (node,) = graph.nodes

    given = arguments_of(node)

    assert given == {"input": graph.inputs[0], "weight": graph.inputs[1], "stride": [2, 2]}
    every = arguments_of(node, defaults=True)
    assert (every["bias"], every["padding"], every["groups"]) == (None, [0, 0], 1)


def test_lists_of_tensors_are_lists_of_values() -> None:
    graph = captured(lambda x, y: torch.cat([x, y, x], 1), torch.ones(2, 3), torch.ones(2, 1))
    x, y = graph.inputs

    assert arguments_of(graph.nodes[0]) == {"tensors": [x, y, x], "dim": 1}


def test_optional_tensors_in_lists_keep_their_places() -> None:
    graph = captured(lambda x, i: x[:, i], torch.ones(2, 3), torch.tensor([0, 2]))
    node = next(node for node in graph.nodes if "index" in node.op_type)

    assert arguments_of(node)["indices"] == [None, node.inputs[1]]


def test_nothing_is_known_of_an_op_that_only_an_executor_runs() -> None:
    graph = program("input %x: f32[2]\n%a: f32[2] = mine.op(%x)\nreturn %a")

    with pytest.raises(PassError, match="(?s)the arguments of mine.op are unknown.*node 'a'"):
        arguments_of(graph.nodes[0])


def everything(self: Any, x: torch.Tensor) -> Any:
    """Has values of every origin."""
    scale = self.weight * self.fixed + torch.tensor([1.0, 2.0, 3.0])
    noise = torch.rand_like(self.weight)
    self.moving.add_(1)
    return x * scale, x * noise, x + self.moving, x * self.weight


def test_a_weight_depends_on_nothing_but_weights_and_constants() -> None:
    held = {"weight": nn.Parameter(torch.ones(3)), "fixed": torch.ones(3), "moving": torch.ones(3)}
    graph = extract_ir(Holding(everything, **held), (torch.ones(3),), name="g")

    def factor(index: int) -> Value:
        (node,) = [value.producer for value in [graph.outputs[index]] if value.producer is not None]
        return node.inputs[1]

    assert is_weight(graph, graph.parameters["weight"])
    assert is_weight(graph, graph.buffers["fixed"])
    assert is_weight(graph, factor(0))
    assert is_weight(graph, factor(3))
    assert not is_weight(graph, factor(1)), "random"
    assert not is_weight(graph, graph.buffers["moving"]), "updated"
    assert not is_weight(graph, factor(2))
    assert not is_weight(graph, graph.inputs[0])
    assert not is_weight(graph, graph.outputs[0])


def test_what_the_prologue_computes_is_a_weight() -> None:
    graph = extract_ir(nn.Linear(3, 2), (torch.ones(1, 3),), name="g")
    weight = graph.parameters["weight"]
    node = graph.insert(
        "aten.neg.default", [weight], types=weight.type, operands=["self"], before=graph.nodes[0]
    )

    graph.move_to_prologue(node)

    assert is_weight(graph, node.outputs[0])


@each_row("function, shapes, operations", {
    "matmul": (lambda x, y: x @ y, [(3, 4), (4, 5)], 2 * 3 * 4 * 5),
    "linear": (fn.linear, [(2, 3, 4), (5, 4), (5,)], 2 * 6 * 4 * 5),
    "conv": (lambda x, w: fn.conv2d(x, w, padding=1), [(1, 2, 4, 4), (3, 2, 3, 3)], 2 * 16 * 3 * 18),
    "grouped": (lambda x, w: fn.conv2d(x, w, groups=2), [(1, 4, 4, 4), (6, 2, 1, 1)], 2 * 16 * 6 * 2),
    "einsum": (lambda x, y: torch.einsum("bi,ij->bj", x, y), [(3, 4), (4, 5)], 2 * 3 * 4 * 5),
    "elementwise": (lambda x: x.relu() + x, [(3, 4)], 0),
    "views": (lambda x: x.t().reshape(2, 6), [(3, 4)], 0),
    "without a formula": (lambda x: x.nonzero(), [(4,)], 0),
    "attention": (lambda x: fn.scaled_dot_product_attention(x, x, x), [(1, 2, 5, 8)],
        2 * (2 * 2 * 5 * 5 * 8)),
})  # fmt: skip
def test_operations_are_counted_by_the_formulas_of_pytorch(
    function: Any, shapes: Any, operations: Any
) -> None:
    graph = captured(function, *(torch.ones(shape) for shape in shapes))
    count = FlopCounter()

    assert sum(count(node) or 0 for node in graph.nodes) == operations


def test_operations_of_ops_that_do_not_run_without_data_are_not_known() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        scale, zero = torch.ones(4), torch.zeros(4, dtype=torch.int32)
        return torch.fake_quantize_per_channel_affine(x, scale, zero, 0, -128, 127)

    graph = captured(function, torch.ones(4, 4))

    nodes = graph.nodes_of("aten.fake_quantize_per_channel_affine.default")
    assert [FlopCounter()(node) for node in nodes] == [None]


_WINDOW = "B=None, padding=[0, 0], stride=[1, 1], dilation=[1, 1], groups=2"
_NO_ACTIVATION = 'attr="none", scalars=[], algorithm=""'
_ADD = 'binary_attr="add", alpha=1.0, unary_attr=None, unary_scalars=[], unary_algorithm=None'
_IMAGES = "input %X: f32[2, 8, 6, 6]\ninput %W: f32[16, 4, 3, 3]\ninput %other: f32[2, 16, 4, 4]"
_ROWS = "symbol rows in [2, 64]\ninput %X: f32[{}, 8]\ninput %W: f32[16, 8]"


def test_operations_of_packed_products_count_as_those_of_others(subtests: pytest.Subtests) -> None:
    convolution, linear = "f32[2, 16, 4, 4] = mkldnn._convolution_pointwise", "= mkldnn._linear_pointwise"
    operations = 2 * (2 * 16 * 4 * 4) * (4 * 3 * 3)
    rows = [
        (_IMAGES, f"{convolution}.default(X=%X, W=%W) {{{_WINDOW}, {_NO_ACTIVATION}}}", operations),
        (_IMAGES, f"{convolution}.default(%X, %W) {{{_WINDOW}, {_NO_ACTIVATION}}}", operations),
        (_IMAGES, f"{convolution}.binary(X=%X, other=%other, W=%W) {{{_WINDOW}, {_ADD}}}", operations),
        (_IMAGES, f"{convolution}.binary(%X, %other, %W) {{{_WINDOW}, {_ADD}}}", operations),
        (_ROWS.format("3, 5"), f"f32[3, 5, 16] {linear}.default(X=%X, W=%W) {{B=None, {_NO_ACTIVATION}}}",
            2 * (3 * 5 * 16) * 8),
        (_ROWS.format("rows"), f"f32[rows, 16] {linear}.default(X=%X, W=%W) {{B=None, {_NO_ACTIVATION}}}",
            None),
    ]  # fmt: skip
    for declared, call, expected in rows:
        with subtests.test(call):
            graph = program(f"{declared}\n%y: {call}\nreturn %y")

            assert FlopCounter()(graph.nodes[0]) == expected


@each_row("number, dtype, held", [
    (2.7, torch.int64, 2.0),
    (0.5, torch.bool, 1.0),
    (2.0**-24, torch.float32, 2.0**-24),
    (0.1, torch.float16, float(torch.tensor(0.1).half())),
    (1.0, torch.complex64, None),
])  # fmt: skip
def test_the_number_in_a_tensor_made_by_an_op_is_what_its_dtype_holds(
    number: Any, dtype: Any, held: Any
) -> None:
    filled = captured(lambda x: x * torch.full((), number, dtype=dtype), torch.ones(2))
    scalar = captured(lambda x: x * torch.scalar_tensor(number, dtype=dtype), torch.ones(2))

    for graph in (filled, scalar):
        (product,) = graph.nodes_of("aten.mul.Tensor")
        assert number_of(product.inputs[1]) == held
