"""Small graphs for contract tests: ops, types, shapes and strides of many kinds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from npu_ir import Graph, TensorType, parse_ir
from npu_ir.ops.inference import infer_types
from npu_ir.serial.parser import parse_type

# Scalar, one element, odd sizes, empty; then column-major, with gaps, expanded, channels last.
_SHAPES = (
    "[]", "[1]", "[31]", "[33]", "[0]", "[2, 0, 3]", "[5, 7]", "[1, 1, 3]", "[1025]",
    "[7, 5]@[1, 7]", "[4, 6]@[16, 2]", "[3, 4]@[0, 1]", "[2, 3, 4, 5]@channels_last",
)  # fmt: skip
_DTYPES = ("f64", "f16", "bf16", "i64", "i32", "u8", "bool", "c64")

# Op, input types by argument, and attributes.
_CALLS: tuple[tuple[str, dict[str, str], dict[str, Any]], ...] = (
    ("aten.add.Tensor", {"self": "f32[5, 7]", "other": "f32[7]"}, {}),
    ("aten.add.Tensor", {"self": "f32[5, 7]", "other": "f32[5, 7]"}, {"alpha": 0.5}),
    ("aten.add.Tensor", {"self": "f32[5, 7]"}, {"other": 2.0}),
    ("aten.add.Tensor", {"self": "f32[5, 7]", "other": "f64[5, 7]"}, {}),
    ("aten.sub.Tensor", {"self": "f32[5, 7]", "other": "f32[5, 7]"}, {}),
    ("aten.div.Tensor", {"self": "f32[5, 7]", "other": "f32[5, 7]"}, {}),
    ("aten.mul.Tensor", {"self": "f32[5, 7]"}, {"other": 0.5}),
    ("aten.mul.Scalar", {"self": "f32[5, 7]", "other": "float"}, {}),
    ("aten.neg.default", {"self": "f32[5, 7]"}, {}),
    ("aten.exp.default", {"self": "f32[5, 7]"}, {}),
    ("aten.tanh.default", {"self": "f32[5, 7]"}, {}),
    ("aten.sigmoid.default", {"self": "f32[5, 7]"}, {}),
    ("aten.gelu.default", {"self": "f32[5, 7]"}, {"approximate": "tanh"}),
    ("aten.maximum.default", {"self": "f32[5, 7]", "other": "f32[5, 7]"}, {}),
    ("aten.eq.Tensor", {"self": "f32[5, 7]", "other": "f32[5, 7]"}, {}),
    ("aten.where.self", {"condition": "bool[5, 7]", "self": "f32[5, 7]", "other": "f32[]"}, {}),
    ("aten.to.dtype", {"self": "f32[5, 7]"}, {"dtype": torch.float16}),
    ("aten.clone.default", {"self": "f32[7, 5]@[1, 7]"}, {}),
    ("aten.sum.dim_IntList", {"self": "f32[5, 7]"}, {"dim": [1], "keepdim": True}),
    ("aten.sum.default", {"self": "f32[33]"}, {}),
    ("aten.mean.dim", {"self": "f32[5, 7]"}, {"dim": [0]}),
    ("aten.argmax.default", {"self": "f32[5, 7]"}, {"dim": 1}),
    ("aten.topk.default", {"self": "f32[5, 7]"}, {"k": 2}),
    ("aten.softmax.int", {"self": "f32[5, 7]"}, {"dim": -1}),
    ("aten.layer_norm.default", {"input": "f32[5, 7]", "weight": "f32[7]"}, {"normalized_shape": [7]}),
    ("aten.linear.default", {"input": "f32[5, 7]", "weight": "f32[3, 7]", "bias": "f32[3]"}, {}),
    ("aten.linear.default", {"input": "f32[2, 5, 7]", "weight": "f32[3, 7]"}, {}),
    ("aten.linear.default", {"input": "f32[7]", "weight": "f32[3, 7]", "bias": "f32[3]"}, {}),
    ("aten.linear.default", {"input": "f32[0, 7]", "weight": "f32[3, 7]", "bias": "f32[3]"}, {}),
    ("aten.linear.default", {"input": "f32[5, 0]", "weight": "f32[3, 0]", "bias": "f32[3]"}, {}),
    ("aten.linear.default", {"input": "f32[33, 31]", "weight": "f32[32, 31]@[1, 32]"}, {}),
    ("aten.linear.default", {"input": "f32[1, 1]", "weight": "f32[1, 1]", "bias": "f32[1]"}, {}),
    ("aten.mm.default", {"self": "f32[5, 7]", "mat2": "f32[7, 3]@[1, 7]"}, {}),
    ("aten.addmm.default", {"self": "f32[3]", "mat1": "f32[5, 7]", "mat2": "f32[7, 3]"}, {}),
    ("aten.matmul.default", {"self": "f32[2, 5, 7]", "other": "f32[2, 7, 3]"}, {}),
    ("aten.conv2d.default", {"input": "f32[2, 3, 7, 5]", "weight": "f32[4, 3, 3, 3]", "bias": "f32[4]"}, {}),
    ("aten.max_pool2d.default", {"self": "f32[1, 2, 7, 5]"}, {"kernel_size": [2, 2]}),
    ("aten.embedding.default", {"weight": "f32[5, 7]", "indices": "i64[3]"}, {}),
    ("aten.view.default", {"self": "f32[5, 6]"}, {"size": [2, 15]}),
    ("aten.permute.default", {"self": "f32[2, 3, 4]"}, {"dims": [2, 0, 1]}),
    ("aten.transpose.int", {"self": "f32[5, 7]"}, {"dim0": 0, "dim1": 1}),
    ("aten.expand.default", {"self": "f32[1, 7]"}, {"size": [5, 7]}),
    ("aten.slice.Tensor", {"self": "f32[5, 7]"}, {"dim": 1, "start": 1, "end": 6, "step": 2}),
    ("aten.split.Tensor", {"self": "f32[5, 7]"}, {"split_size": 2}),
    (
        "aten.cat.default",
        {"tensors[0]": "f32[2, 7]", "tensors[1]": "f32[0, 7]", "tensors[2]": "f32[3, 7]"},
        {},
    ),
    ("aten.full.default", {}, {"size": [2, 3], "fill_value": 1.5}),
)  # fmt: skip

_PROGRAMS = """
graph chain {
  input %x: f32[5, 7]
  input %weight: f32[3, 7]
  input %bias: f32[3]
  %linear: f32[5, 3] = aten.linear.default(input=%x, weight=%weight, bias=%bias)
  %relu: f32[5, 3] = aten.relu.default(self=%linear)
  %mul: f32[5, 3] = aten.mul.Tensor(self=%relu, other=%linear)
  %add: f32[5, 3] = aten.add.Tensor(self=%mul, other=%bias)
  return %add
}
---
graph "a value that is read twice" {
  input %x: f32[33]
  %mul: f32[33] = aten.mul.Tensor(self=%x, other=%x)
  %relu: f32[33] = aten.relu.default(self=%mul)
  %add: f32[33] = aten.add.Tensor(self=%relu, other=%mul)
  return (%add, %mul, %add)
}
---
graph "independent parts" {
  input %x: f32[3]
  input %y: f32[2, 2]
  %relu: f32[3] = aten.relu.default(self=%x)
  %add: f32[2, 2] = aten.add.Tensor(self=%y, other=%y)
  %relu_1: f32[2, 2] = aten.relu.default(self=%add)
  return (%relu_1, %relu)
}
"""

_ODD = """
graph "open sizes" {
  symbol n in [0, inf]
  input %x: f32[n, 3]
  %size: int(n) = aten.sym_size.int(self=%x) {dim=0}
  %relu: f32[n, 3] = aten.relu.default(self=%x)
  %view: f32[3*n] = aten.view.default(self=%relu, size=(-1,))
  return (%view, %size)
}
---
graph regions {
  input %choose: bool[]
  input %x: f32[3]
  %cond: f32[3] = higher_order.cond(pred=%choose, operands=(%x))
  region true_fn = graph yes {
    input %a: f32[3]
    %sin: f32[3] = aten.sin.default(self=%a)
    return (%sin,)
  }
  region false_fn = graph no {
    input %a: f32[3]
    %cos: f32[3] = aten.cos.default(self=%a)
    return (%cos,)
  }
  return %cond
}
"""


def zoo() -> dict[str, Graph]:
    """Return graphs to lower and run, by name: inputs and nodes, without weights."""
    graphs = [*_elementwise(), *(_call(*row) for row in _CALLS), *map(parse_ir, _PROGRAMS.split("---"))]
    return {graph.name: graph for graph in graphs}


def odd_graphs() -> list[Graph]:
    """Return graphs for `supports` alone: most backends refuse their nodes, each with a reason."""
    return [
        *map(parse_ir, _ODD.split("---")),
        _typed_call("acme.unknown.default", ["f32[3]"], ["f32[3]"]),
        _typed_call(
            "a name that is none", ["f32[3]"], ["f32[3]", "none"], {"list": [1, [2.5, "text", None]]}
        ),
        _typed_call("aten.add.Tensor", [], []),
        _typed_call("aten.relu.default", ["f32[3]@sparse_coo"], ["f32[3]@sparse_coo"]),
        _typed_call("aten.relu.default", ["float8_e4m3fn[3]"], ["float8_e4m3fn[3]"]),
        _typed_call("aten.relu.default", ["f32[1099511627776, 1048576]"], ["f32[1099511627776, 1048576]"]),
        _typed_call("aten.linear.default", ["f32[2]"], ["f32[3]"]),
        _typed_call("aten.mul.Tensor", ["int", "float"], ["f32[]"]),
        _call("aten.dropout.default", {"input": "f32[3]"}, {"p": 0.5, "train": True}),
        _call("aten.rand.default", {}, {"size": [3]}),
    ]


def _elementwise() -> Iterator[Graph]:
    for type in (*(f"f32{shape}" for shape in _SHAPES), *(f"{dtype}[33]" for dtype in _DTYPES)):
        yield _call("aten.add.Tensor", {"self": type, "other": type}, {})
        if not type.startswith(("bool", "c64")):
            yield _call("aten.relu.default", {"self": type}, {})


def _call(op_type: str, inputs: Mapping[str, str], attrs: Mapping[str, Any]) -> Graph:
    """Return the graph of one call, named after it."""
    graph = Graph(
        f"{op_type} on {', '.join(inputs.values()) or 'nothing'}" + (f" {dict(attrs)}" if attrs else "")
    )
    values = [
        graph.add_input(name.replace("[", "_").rstrip("]"), parse_type(type)) for name, type in inputs.items()
    ]
    types = infer_types(op_type, values, attrs, operands=tuple(inputs), symbols={})
    node = graph.insert(op_type, values, attrs, types=types, operands=tuple(inputs))
    graph.set_outputs(tuple(node.outputs))
    return graph


def _typed_call(
    op_type: str, inputs: list[str], outputs: list[str], attrs: Mapping[str, Any] | None = None
) -> Graph:
    """Return the graph of one call with stated output types."""
    graph = Graph(op_type)
    values = [graph.add_input(f"x{index}", parse_type(type)) for index, type in enumerate(inputs)]
    node = graph.insert(op_type, values, attrs, types=[parse_type(type) for type in outputs])
    graph.set_outputs(tuple(value for value in node.outputs if isinstance(value.type, TensorType)))
    return graph
