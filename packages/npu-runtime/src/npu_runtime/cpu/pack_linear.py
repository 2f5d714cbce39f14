"""oneDNN linear layers with packed weights and fused activations."""

from __future__ import annotations

import math
from dataclasses import dataclass

from npu_ir import Graph, OpNode, TensorType, Value
from npu_passes import Pass, within
from npu_passes.errors import PassError
from npu_passes.rewriting.arguments import arguments_of
from npu_passes.rewriting.value_replacement import match_strides
from npu_passes.rewriting.weight_dependence import weight_problem
from npu_runtime.cpu import onednn
from npu_runtime.cpu.onednn import NOTHING, activation_of, only_reader, type_problem

_LINEAR, _ADDMM = "aten.linear.default", "aten.addmm.default"
_RULE = "pack-linear"
# One thread of an AMD EPYC (Zen 4, AVX-512), torch 2.13, us without and with packed weights: 128 x 256 x
# 256 (rows, in, out) 174, 167; 128 x 768 x 3072 9106, 6175; but 64 x 256 x 256 90, 91, and 16 x 32 x 96 4,
# 17.
_MIN_PRODUCTS = 8_000_000
# The same for a large weight and few rows: 4 x 512 x 512 55, 39; 4 x 1024 x 1024 301, 98; but 1 x 768 x 768
# 46, 50.
_MIN_PRODUCTS_OF_LARGE, _LARGE_WEIGHT = 1_000_000, 1 << 18


@dataclass(frozen=True, slots=True)
class _Linear:
    """Linear layer; ``weight`` is [out, in], or [in, out] if ``is_transposed``."""

    node: OpNode
    input: Value
    weight: Value
    bias: Value | None
    is_transposed: bool

    @property
    def rows(self) -> int:
        return math.prod(self.input.tensor_type.static_shape[:-1])


class PackLinear(Pass):
    """Compute large linear layers by ``mkldnn::_linear_pointwise``, with weights packed when they are bound.

    1. ``aten.linear``, and an activation that oneDNN can fuse, or none: relu, relu6, hardtanh, leaky_relu,
       gelu (both forms), silu, hardswish, sigmoid, tanh.
    2. ``aten.addmm`` with a bias vector and a weight of [in, out], likewise.

    Small layers stay, because the call has an overhead of 13 us. So do other dtypes than float32 and
    dynamic sizes. A fused relu may turn NaN into 0.

    Attributes:
        min_products: Number of multiply-adds from which a layer is worth the call.
    """

    name = "pack-linear"
    numerics = within(1e-5)
    after = (
        *("conv-bn-folding", "conv-add-folding", "constant-folding", "fuse-linear-activation"),
        "quantize-weights",
    )

    min_products: int = _MIN_PRODUCTS

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.min_products < 0:
            raise PassError(
                f"the option 'min_products' of {self.name} is a number of products, not {self.min_products}"
            )

    def run(self, graph: Graph) -> bool:
        changed = False
        for node in graph.nodes_of(_LINEAR, _ADDMM):
            if node.in_prologue:
                continue
            item = _linear_of(node)
            problem = onednn.unavailable_reason() or self._problem(graph, item)
            if problem is not None:
                self.refuse(node, problem, _RULE)
                continue
            self._pack(graph, item)
            changed = True
        return changed

    def _problem(self, graph: Graph, item: _Linear) -> str | None:
        """Return the reason why a layer stays; None if packing its weight is faster."""
        arguments = arguments_of(item.node, defaults=True)
        problem = type_problem(item.input, item.weight, item.bias, item.node.outputs[0])
        if problem is not None:
            return problem
        if item.input.tensor_type.rank < 2 or item.weight.tensor_type.rank != 2:
            return "it is not a product with a matrix"
        if arguments.get("alpha", 1) != 1 or arguments.get("beta", 1) != 1:
            return "it scales the product or the bias"
        if item.bias is not None and item.bias.tensor_type.rank != 1:
            return f"its bias %{item.bias.name} is {item.bias.type}, not a vector"
        products = item.rows * math.prod(item.weight.tensor_type.static_shape)
        is_large = math.prod(item.weight.tensor_type.static_shape) >= _LARGE_WEIGHT
        if products < (min(self.min_products, _MIN_PRODUCTS_OF_LARGE) if is_large else self.min_products):
            return f"{products} multiplications are too few to pay for the call"
        return weight_problem(graph, item.weight)

    def _pack(self, graph: Graph, item: _Linear) -> None:
        reader = only_reader(item.node.outputs[0])
        activation = activation_of(reader)
        nodes = [item.node] if reader is None or activation is None else [item.node, reader]
        with self.rewrite(graph, _RULE, *nodes) as edit:
            weight = item.weight
            if item.is_transposed:
                weight = edit.to_prologue(edit.call("aten.permute.default", weight, [1, 0]))
            weight = onednn.pack(edit, onednn.PACK_LINEAR, weight, item.rows)
            out = weight.tensor_type.shape[0]
            result = edit.call(
                onednn.LINEAR,
                item.input,
                weight,
                onednn.dense_bias(edit, item.bias),
                *(activation or NOTHING).arguments,
                type=TensorType((*item.input.tensor_type.shape[:-1], out), item.input.tensor_type.dtype),
                name=item.node.name,
            )
            last = nodes[-1].outputs[0]
            edit.replace(last, match_strides(edit, result, last))


def _linear_of(node: OpNode) -> _Linear:
    arguments = arguments_of(node, defaults=True)
    if node.op_type == _LINEAR:
        return _Linear(node, arguments["input"], arguments["weight"], arguments["bias"], is_transposed=False)
    return _Linear(node, arguments["mat1"], arguments["mat2"], arguments["self"], is_transposed=True)
