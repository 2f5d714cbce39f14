"""Linear layers by weights of 8 or 4 bits, quantized when weights are bound."""

from __future__ import annotations

import math
from fnmatch import fnmatchcase
from typing import Any

from npu_ir import Graph, OpNode, TensorType, Value
from npu_passes.core.base import Pass, within
from npu_passes.core.edit import Edit
from npu_passes.errors import PassError
from npu_passes.library.quantization.integer_weights import integer_weight_of
from npu_passes.ops.dynamic_quantized import DYNAMIC_QUANTIZED_LINEAR, USUAL_BLOCK, block_problem
from npu_passes.ops.quantized import BITS, QUANTIZE_WEIGHT, QUANTIZED_LINEAR, quantization_problem
from npu_passes.rewriting.arguments import arguments_of
from npu_passes.rewriting.products import PRODUCTS, Product, product_of
from npu_passes.rewriting.value_replacement import match_strides
from npu_passes.rewriting.weight_dependence import weight_problem

_LINEAR = "aten.linear.default"
_USUAL_GROUP = 32  # of 4 bits
_RULE = "quantize"
ACTIVATIONS = ("float", "int8")


class QuantizeWeights(Pass):
    """Replace linear layers by ``npu::quantized_linear``, which reads weights of 8 or 4 bits.

    1. ``aten.linear`` and ``npu.linear`` by a weight; the prologue quantizes it (``npu::quantize_weight``).
    2. ``aten.mm``, ``aten.matmul`` and ``aten.addmm`` by a weight of [in, out] likewise, if ``aten.addmm``
       scales neither the product nor its bias vector.
    3. ``aten.linear`` by integers of int8 that the model has itself (as torchao makes them), converted to
       floats in each call, and times a scale for each row, or not: the integers are read as they are.

    Activations stay floats, sums are float32. A weight differs by half the scale of its group at most, so a
    result by the sum of ``scale / 2 * abs(x)`` over its row, besides rounding: of weights that are normally
    distributed, about 1% of a usual result with 8 bits and a scale for a row, and 10% with 4 bits and groups
    of 32. Errors of layers add up; `npu_runtime.compare` measures them. A weight that something else reads,
    such as an embedding, stays for that.

    With ``activations="int8"`` the product is ``npu::dynamic_quantized_linear``: a row of activations is
    rounded to int8 in each call, in blocks with a scale each (the largest magnitude over 127), and integers
    are multiplied by integers, exactly; sums of blocks are scaled and added up in float32. So a result
    differs by the sum of ``block scale / 2 * abs(w)`` more, with the weights as they are rounded: about 0.5%
    of a usual result. A row with a NaN or an infinity has results of NaN.

    Attributes:
        bits: 8 or 4.
        group: The number of elements with a scale in common, which has to divide the length of a row; 0
            stands for a whole row with 8 bits, and for 32 with 4.
        min_elements: Smaller weights stay.
        skip: Weights that stay, by name; ``*`` stands for any text.
        activations: ``"float"``: as they are; or ``"int8"``: rounded.
        block: The number of activations with a scale in common, up to 1024, within each group of the weight.
    """

    name = "quantize-weights"
    numerics = within(0.1)
    is_idempotent = True
    before = ("fuse-linear-activation",)
    after = ("constant-folding",)

    bits: int = 8
    group: int = 0
    min_elements: int = 1024
    skip: tuple[str, ...] = ()
    activations: str = "float"
    block: int = USUAL_BLOCK

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bits not in BITS:
            raise PassError(
                f"{self.name}: integers have 8 or 4 bits, not {self.bits}", fix="bits=8 or bits=4"
            )
        if self.group < 0:
            raise PassError(
                f"{self.name}: a group has {self.group} elements", fix="group=32, or 0 for the default"
            )
        if self.activations not in ACTIVATIONS:
            raise PassError(
                f"{self.name}: activations are {self.activations!r}, not {' or '.join(ACTIVATIONS)}",
                fix='activations="float", or "int8" for products of integers',
            )
        if (problem := block_problem(self.bits, self.block)) is not None:
            raise PassError(f"{self.name}: {problem}", fix=f"block={USUAL_BLOCK}")

    def run(self, graph: Graph) -> bool:
        """Try each product."""
        quantized: dict[tuple[Value, bool], tuple[Value, ...]] = {}
        before = graph.edits
        for node in graph.nodes_of(*PRODUCTS):
            if node.in_prologue:
                continue
            if node.op_type == _LINEAR and self._keep_integers(graph, node):
                continue
            item = product_of(node)
            problem = item if isinstance(item, str) else self._problem(graph, item)
            if problem is not None:
                self.refuse(node, problem, _RULE)
                continue
            assert isinstance(item, Product)
            with self.rewrite(graph, _RULE, node) as edit:
                key = item.matrix, item.is_transposed
                if key not in quantized:
                    quantized[key] = self._quantize(edit, item)
                self._replace(edit, node, item.input, *quantized[key], item.bias)
        return graph.edits != before

    def _keep_integers(self, graph: Graph, node: OpNode) -> bool:
        """Have a layer read integers that the model has itself; return whether it does."""
        arguments: dict[str, Any] = dict(arguments_of(node, defaults=True))
        found = integer_weight_of(graph, arguments["weight"])
        if found is None or arguments["input"].tensor_type.rank < 2:
            return False
        with self.rewrite(graph, "integers", node) as edit:
            self._replace(edit, node, arguments["input"], *found.operands(edit), arguments["bias"])
        return True

    def _replace(self, edit: Edit, node: OpNode, *operands: Value | None) -> None:
        """Have an op of integers and scales compute the result of a node."""
        if self.activations == "int8":
            result = edit.call(DYNAMIC_QUANTIZED_LINEAR, *operands, self.block, name=node.name)
        else:
            result = edit.call(QUANTIZED_LINEAR, *operands, name=node.name)
        edit.replace(node.outputs[0], match_strides(edit, result, node.outputs[0]))

    def _quantize(self, edit: Edit, item: Product) -> tuple[Value, ...]:
        weight = item.matrix
        if not item.is_transposed:
            weight = edit.to_prologue(edit.call("aten.permute.default", weight, [1, 0]))
        made = edit.calls(QUANTIZE_WEIGHT, weight, self.bits, self._group_of(item.length), name="quantized")
        edit.to_prologue(made[0])
        return made

    def _group_of(self, length: int) -> int:
        return self.group or (max(1, length) if self.bits == 8 else _USUAL_GROUP)

    def _problem(self, graph: Graph, item: Product) -> str | None:
        """Return the reason why a product stays; None if its weight can be quantized."""
        for value in (item.input, item.matrix, item.bias):
            if value is None:
                continue
            if not isinstance(value.type, TensorType) or not value.type.dtype.is_floating_point:
                return f"%{value.name} is {value.type}, not a tensor of floats"
        type = item.matrix.tensor_type
        if type.rank != 2 or item.input.tensor_type.rank < 2:
            return "it is not a product of rows with a matrix"
        if type.symbols:
            return f"%{item.matrix.name} is {type}: its groups have a fixed size"
        if item.bias is not None and item.bias.tensor_type.rank != 1:
            return f"its bias %{item.bias.name} is {item.bias.type}, not a vector"
        count = math.prod(type.static_shape)
        if count < self.min_elements:
            return f"its weight %{item.matrix.name} has {count} elements, less than {self.min_elements}"
        if any(fnmatchcase(item.matrix.name, pattern) for pattern in self.skip):
            return f"its weight %{item.matrix.name} is to stay"
        problem = quantization_problem(item.length, self.bits, self._group_of(item.length))
        return problem or weight_problem(graph, item.matrix)
