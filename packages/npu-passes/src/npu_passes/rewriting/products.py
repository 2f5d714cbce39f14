"""Products of rows with a matrix, in whichever op a graph has them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from npu_ir import OpNode, Value
from npu_passes.rewriting.arguments import arguments_of

_LINEAR, _ADDMM = ("aten.linear.default", "npu.linear.default"), "aten.addmm.default"
_MATMUL = ("aten.mm.default", "aten.matmul.default")
PRODUCTS = (*_LINEAR, _ADDMM, *_MATMUL)


@dataclass(frozen=True, slots=True)
class Product:
    """Product ``input @ matrix + bias``; ``matrix`` is [out, in] if ``is_transposed``."""

    input: Value
    matrix: Value
    bias: Value | None
    is_transposed: bool

    @property
    def length(self) -> int:
        """The number of elements that are multiplied for a result, of a matrix of fixed sizes."""
        return self.matrix.tensor_type.static_shape[1 if self.is_transposed else 0]


def product_of(node: OpNode) -> Product | str:
    """Return the product that a node of `PRODUCTS` computes; the reason if it does something else, too."""
    arguments: dict[str, Any] = dict(arguments_of(node, defaults=True))
    if node.op_type in _LINEAR:
        return Product(arguments["input"], arguments["weight"], arguments["bias"], is_transposed=True)
    if node.op_type == _ADDMM:
        if arguments["alpha"] != 1 or arguments["beta"] != 1:
            return "it scales the product or the bias"
        return Product(arguments["mat1"], arguments["mat2"], arguments["self"], is_transposed=False)
    right = arguments["mat2"] if "mat2" in arguments else arguments["other"]
    return Product(arguments["self"], right, None, is_transposed=False)
