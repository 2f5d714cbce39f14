"""Conversion of the numbers of a graph to 0-d tensors."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from npu_ir import Graph, OpNode, Value
from npu_ir.core.types import is_dtype_name, parse_dtype
from npu_ir.ops.arguments import path_of_operand
from npu_passes.core.base import Pass, within
from npu_passes.core.edit import Edit
from npu_passes.errors import PassError
from npu_passes.library.training.scalars_to_tensors.arithmetic import (
    ITEMS,
    compute,
    read_number,
    tensor_of_number,
)
from npu_passes.library.training.scalars_to_tensors.selection import (
    Choice,
    is_only_converted,
    tensor_inputs,
)
from npu_passes.rewriting.arguments import arguments_of

__all__ = ["ScalarsToTensors", "is_only_converted", "tensor_inputs"]

_RULE = "tensor"


class ScalarsToTensors(Pass):
    """Convert numbers to 0-d tensors, so that one recording of the graph serves all their values.

    1. Floats that are inputs of the graph, such as learning rates, are first converted to tensors by
       ``aten.scalar_tensor`` nodes, their only readers. `tensor_inputs` then turns these inputs into tensors.
    2. A number that ``item()`` reads from a tensor stays a tensor.
    3. Arithmetic on such numbers becomes arithmetic on tensors. Where Python raises, as in a division by
       zero, tensors give infinities and NaN.
    4. An op that reads such numbers becomes the overload that takes tensors instead. If there is none,
       factors such as ``alpha`` of a sum and ``value`` of ``addcmul`` are multiplied with their term first.

    Tensors are cast to the dtype that the op computes in, so the types of results stay; ``float16`` and
    ``bfloat16`` are computed in ``float32``, as the kernels that take numbers do. A number that a node
    needs as a number stays, and so do all numbers that it is computed from or that are computed from it;
    the pass reports which node needs it.

    Attributes:
        dtype: Dtype of the tensors that replace floats.
        in_memory: Whether all numbers of an optimizer's step become tensors that its op reads from memory, as
            ``tensor_numbers`` of ``npu::adam_step`` does. Else only its learning rate does.
    """

    name = "scalars-to-tensors"
    numerics = within(1e-5)
    is_idempotent = True

    dtype: str = "float64"
    in_memory: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not is_dtype_name(self.dtype) or not parse_dtype(self.dtype).is_floating_point:
            raise PassError(
                f"the option 'dtype' of {self.name} is a floating-point type, not {self.dtype!r}",
                fix="write float64, or float32 for devices without it",
            )

    def run(self, graph: Graph) -> bool:
        before = graph.edits
        dtype = parse_dtype(self.dtype)
        choice = Choice(graph, dtype, self.in_memory)
        for node, value, reason in choice.stays:
            place = node or value.producer or next(iter(value.users), None)
            if place is not None:
                self.refuse(place, f"%{value.name} stays a number: {reason}", _RULE)
        if not choice.forms:
            return graph.edits != before
        numbers = _Numbers(graph, choice, dtype)
        # In graph order, so that each tensor is created before its first reader.
        for node, form in sorted(choice.forms.items(), key=lambda item: numbers.places[item[0]]):
            with self.rewrite(graph, _RULE, *numbers.nodes_computing(node), node) as edit:
                results = form.results(edit, numbers.tensors_for(edit, node, form.tensors))
                for old, new in zip(node.outputs, results, strict=True):
                    edit.replace(old, new)
        return graph.edits != before


class _Numbers:
    """Tensors that replace numbers, created at their first use."""

    def __init__(self, graph: Graph, choice: Choice, dtype: torch.dtype) -> None:
        self.places: Mapping[OpNode, int] = {node: index for index, node in enumerate(graph.nodes)}
        self._chosen = choice.numbers
        self._dtype = dtype
        self._tensors: dict[Value, Value] = {}

    def nodes_computing(self, node: OpNode) -> list[OpNode]:
        """Return the nodes that compute the numbers that ``node`` reads, in order."""
        nodes: set[OpNode] = set()
        pending = [value for value in node.inputs if value in self._chosen]
        while pending:
            producer = pending.pop().producer
            if producer is not None and producer not in nodes and not producer.is_erased:
                nodes.add(producer)
                pending += [value for value in producer.inputs if value in self._chosen]
        return sorted(nodes, key=self.places.__getitem__)

    def tensors_for(self, edit: Edit, node: OpNode, names: frozenset[str]) -> dict[str, Value]:
        """Return the tensors for the arguments of a node with these names."""
        operands = zip(node.operands or (), node.inputs, strict=False)
        return {
            name: self._tensor(edit, value) for name, value in operands if path_of_operand(name)[0] in names
        }

    def _tensor(self, edit: Edit, value: Value) -> Value:
        if value not in self._tensors:
            self._tensors[value] = self._create(edit, value)
        return self._tensors[value]

    def _create(self, edit: Edit, value: Value) -> Value:
        node = value.producer
        if node is None:
            return tensor_of_number(edit, value, self._dtype)
        if node.op_type in ITEMS:
            return read_number(edit, node, self._dtype)
        operands = [
            self._tensor(edit, item) if isinstance(item, Value) else item
            for item in arguments_of(node).values()
        ]
        return compute(edit, node, operands, self._dtype)
