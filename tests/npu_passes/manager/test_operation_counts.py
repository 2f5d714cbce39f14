"""Floating-point operations of graphs and of single ops, some of which are not run to be counted."""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from npu_ir import extract_ir
from npu_passes.manager import statistics
from npu_passes.manager.statistics import (
    WITHOUT_PRODUCTS,
    FlopCounter,
    _Call,
    _count_flops,
    graph_statistics,
)
from tests.support.corpus.case import Function
from tests.support.rows import each_row

IMAGE, ROWS = torch.rand(2, 4, 6, 6), torch.rand(2, 4, 6)
_WITHOUT_PRODUCTS: dict[str, tuple[Any, tuple[Tensor, ...]]] = {
    "aten.layer_norm.default": (lambda x: F.layer_norm(x, [6], x[0, 0], x[0, 0]), (ROWS,)),
    "aten.rms_norm.default": (lambda x: F.rms_norm(x, [6], x[0, 0]), (ROWS,)),
    "aten.group_norm.default": (lambda x: F.group_norm(x, 2), (IMAGE,)),
    "aten.instance_norm.default": (lambda x: F.instance_norm(x), (IMAGE,)),
    "aten.batch_norm.default": (lambda x: F.batch_norm(x, x[0, :, 0, 0], x[0, :, 0, 1]), (IMAGE,)),
    "aten.softmax.int": (lambda x: F.softmax(x, -1), (ROWS,)),
    "aten.log_softmax.int": (lambda x: F.log_softmax(x, -1), (ROWS,)),
    "aten.dropout.default": (lambda x: F.dropout(x), (ROWS,)),
    "aten.feature_dropout.default": (lambda x: torch.feature_dropout(x, 0.5, True), (IMAGE,)),
    "aten.adaptive_avg_pool1d.default": (lambda x: F.adaptive_avg_pool1d(x, 2), (ROWS,)),
    "aten.adaptive_avg_pool2d.default": (lambda x: F.adaptive_avg_pool2d(x, 2), (IMAGE,)),
    "aten.adaptive_avg_pool3d.default": (lambda x: F.adaptive_avg_pool3d(x, 2), (IMAGE[None],)),
    "aten.max_pool1d.default": (lambda x: F.max_pool1d(x, 2), (ROWS,)),
    "aten.max_pool2d.default": (lambda x: F.max_pool2d(x, 2), (IMAGE,)),
    "aten.max_pool3d.default": (lambda x: F.max_pool3d(x, 2), (IMAGE[None],)),
    "aten.avg_pool1d.default": (lambda x: F.avg_pool1d(x, 2), (ROWS,)),
    "aten.pad.default": (lambda x: F.pad(x, (1, 1)), (IMAGE,)),
    "aten.upsample_nearest2d.vec": (lambda x: F.interpolate(x, scale_factor=2), (IMAGE,)),
    "aten.upsample_bilinear2d.vec": (
        *(lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear"), (IMAGE,)),
    ),
}


@each_row("op_type", sorted(WITHOUT_PRODUCTS))
def test_composite_ops_that_are_not_run_have_no_products(op_type: str) -> None:
    function, tensors = _WITHOUT_PRODUCTS[op_type]
    graph = extract_ir(Function(function), tensors)
    (node,) = [node for node in graph.nodes if node.op_type == op_type]
    inputs, outputs = (tuple(value.type for value in part) for part in (node.inputs, node.outputs))

    when_run = _count_flops(_Call(op_type, inputs, outputs, node.operands, dict(node.attrs)))

    assert (FlopCounter()(node), when_run) == (0, 0)


@each_row(
    "query, key, options",
    {
        "plain": ((2, 3, 5, 8), (2, 3, 7, 8), {}),
        "causal": ((2, 3, 5, 8), (2, 3, 5, 8), {"is_causal": True}),
        "grouped": ((2, 6, 5, 8), (2, 3, 7, 8), {"enable_gqa": True}),
        "three axes": ((3, 5, 8), (3, 7, 8), {}),
    },
)
def test_attention_counts_as_its_two_products(query: Any, key: Any, options: dict[str, Any]) -> None:
    def attend(q: Tensor, k: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, k, **options)

    heads = query[:-2]
    products = 2 * math.prod(heads) * query[-2] * key[-2] * query[-1]

    graph = extract_ir(Function(attend), (torch.rand(query), torch.rand(key)))
    counted = sum(FlopCounter()(node) or 0 for node in graph.nodes)

    assert counted == 2 * products


def test_operations_of_a_convolution_and_its_gradients_follow_from_the_sizes_of_results() -> None:
    def convolve(x: Tensor, w: Tensor) -> Tensor:
        return torch.convolution(x, w, None, [2, 2], [0, 0], [1, 1], False, [0, 0], 1)

    def differentiate(dy: Tensor, x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        return torch.ops.aten.convolution_backward(
            dy, x, w, [4], [2, 2], [0, 0], [1, 1], False, [0, 0], 1, [True, True, True]
        )

    dy, x, w = torch.zeros(2, 4, 4, 4), torch.zeros(2, 3, 9, 9), torch.zeros(4, 3, 3, 3)
    products = (2 * 4 * 4 * 4) * (3 * 3 * 3)

    for function, tensors, each in ((convolve, (x, w), 2), (differentiate, (dy, x, w), 4)):
        found = graph_statistics(extract_ir(Function(function), tensors))

        assert (found.flops, found.unknown_flops) == (each * products, 0)


def test_operations_are_counted_when_asked_for_of_the_graph_as_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counted: list[str] = []
    count = statistics._count_flops

    def counting(call: Any) -> int | None:
        counted.append(call.op_type)
        return count(call)

    monkeypatch.setattr(statistics, "_count_flops", counting)
    graph = extract_ir(nn.Linear(4, 8), (torch.zeros(3, 4),))
    before = graph_statistics(graph)
    graph.set_outputs(())
    graph.erase(graph.nodes[0])

    assert not counted
    assert (before.flops, graph_statistics(graph).flops) == (2 * 3 * 4 * 8, 0)
    assert counted == ["aten.linear.default"]


def test_operations_of_open_sizes_are_said_to_be_unknown() -> None:
    batch = torch.export.Dim("batch", min=2, max=8)
    graph = extract_ir(nn.Linear(4, 8), (torch.zeros(3, 4),), dynamic_shapes=({0: batch},))
    found = graph_statistics(graph)

    assert (found.flops, found.unknown_flops) == (0, 1)
