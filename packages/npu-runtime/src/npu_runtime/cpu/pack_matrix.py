"""Products by constant matrices, packed in panels for the backend ``host``."""

from __future__ import annotations

import math

import torch

from npu_ir import Graph, OpNode, TensorType, Value
from npu_passes import Edit, Pass, within
from npu_passes.ops.packed import (
    PACK_FILTERS,
    PACK_MATRIX,
    PACKED_LINEAR,
    panel_width,
    panels_type,
    product_type,
)
from npu_passes.rewriting.products import PRODUCTS, Product, product_of
from npu_passes.rewriting.value_replacement import match_strides
from npu_passes.rewriting.weight_dependence import weight_problem

# Rows of 16-bit floats that the time to read the weights hides; with more, ATen's use the tile instructions.
_MOST_SHORT_ROWS = 16


class PackMatrix(Pass):
    """Pack the matrices of linear layers when weights are bound, for the backend ``host``.

    1. ``aten.linear`` and ``npu.linear`` become ``npu::packed_linear`` of ``npu::pack_filters``, which is in
       the prologue; so do ``aten.mm`` and ``aten.matmul`` by a weight, of ``npu::pack_matrix``.
    2. ``aten.addmm`` with a bias vector likewise, if it scales neither the product nor the bias.

    The packed weight is a plain tensor. Without the backend ``host`` the layers compute the same, slower. So
    products stay that it does not run, of open sizes, or not faster: of float64, or of 16 bits and many rows.
    """

    name = "pack-matrix"
    numerics = within(1e-5)
    after = (
        *("conv-bn-folding", "conv-add-folding", "constant-folding", "fuse-linear-activation"),
        "quantize-weights",
    )

    def run(self, graph: Graph) -> bool:
        changed = False
        for node in graph.nodes_of(*PRODUCTS):
            if node.in_prologue:
                continue
            item = product_of(node)
            problem = item if isinstance(item, str) else _problem(graph, item)
            if problem is not None:
                self.refuse(node, problem, "pack")
                continue
            assert isinstance(item, Product)
            self._pack(graph, node, item)
            changed = True
        return changed

    def _pack(self, graph: Graph, node: OpNode, item: Product) -> None:
        with self.rewrite(graph, "pack", node) as edit:
            shape = item.matrix.tensor_type.static_shape
            rows, columns = reversed(shape) if item.is_transposed else shape
            op_type, width = PACK_FILTERS if item.is_transposed else PACK_MATRIX, panel_width(columns)
            panels = pack_weight(edit, op_type, item.matrix, width, (rows, columns), width)
            made = product_type(item.input.tensor_type, columns)
            result = edit.call(
                PACKED_LINEAR, item.input, panels, item.bias, columns, type=made, name=node.name
            )
            (output,) = node.outputs
            edit.replace(output, match_strides(edit, result, output))


def pack_weight(
    edit: Edit, op_type: str, weight: Value, option: int, shape: tuple[int, int], width: int
) -> Value:
    """Return the panels that an op of the prologue makes of a weight: those of a matrix of this shape."""
    type = panels_type(TensorType(shape, weight.tensor_type.dtype), width)
    return edit.to_prologue(edit.call(op_type, weight, option, type=type, name="packed"))


def _problem(graph: Graph, item: Product) -> str | None:
    """Return the reason why a product stays; None if its matrix can be packed."""
    for value in (item.input, item.matrix, item.bias):
        if value is None:
            continue
        if not isinstance(value.type, TensorType) or not value.type.dtype.is_floating_point:
            return f"%{value.name} is {value.type}, not a tensor of floats"
    if item.matrix.tensor_type.rank != 2 or item.input.tensor_type.rank < 2:
        return "it is not a product of rows with a matrix"
    if item.input.tensor_type.symbols:
        return f"%{item.input.name} is {item.input.type}: the backend host takes fixed sizes"
    dtype, rows = item.input.tensor_type.dtype, math.prod(item.input.tensor_type.static_shape[:-1])
    if dtype is torch.float64 or (dtype is not torch.float32 and rows > _MOST_SHORT_ROWS):
        return f"ATen's products of {rows} rows of {dtype} are faster"
    if item.matrix.tensor_type.symbols:
        return f"%{item.matrix.name} is {item.matrix.type}: its panels have a fixed size"
    if item.bias is not None and item.bias.tensor_type.rank != 1:
        return f"its bias %{item.bias.name} is {item.bias.type}, not a vector"
    return weight_problem(graph, item.matrix)
