"""Floating-point operations of ops that are not run to be counted."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from npu_ir import extract_ir
from npu_passes.manager.statistics import WITHOUT_PRODUCTS, FlopCounter, _Call, _count_flops
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
