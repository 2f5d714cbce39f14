"""Recipes: how a value is computed from weights, equal in different graphs of the same weights."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import torch

from npu_ir.core.node import Value, external_names
from npu_ir.ops.effects import is_pure


class Recipes:
    """The recipes of values of one graph.

    Args:
        weights: The tensor of each argument, which is not kept; equal recipes start from the same memory.
    """

    def __init__(self, weights: Mapping[Value, Any]) -> None:
        self._weights = {value: _content_id(tensor) for value, tensor in weights.items()}
        self._known: dict[Value, str | None] = {}

    def of(self, value: Value) -> str | None:
        """Return the recipe of a value; None if it cannot be compared with others."""
        if value not in self._known:
            self._known[value] = self._of_weight(value) if value.producer is None else self._computed(value)
        return self._known[value]

    def _of_weight(self, value: Value) -> str | None:
        content = self._weights.get(value)
        if content is None or value.argument is None:
            return None
        address, version = content
        return f"{external_names(value)} {address} {version} {value.type}"

    def _computed(self, value: Value) -> str | None:
        node = value.producer
        assert node is not None
        inputs = [self.of(item) for item in node.inputs]
        if None in inputs or node.regions or not is_pure(node):
            return None
        parts = node.op_type, inputs, node.operands, sorted(node.attrs.items()), node.outputs.index(value)
        text = f"{parts!r} {[str(item.type) for item in node.outputs]}"
        return hashlib.sha256(text.encode()).hexdigest()


def _content_id(tensor: Any) -> tuple[int, int] | None:
    """Return the address and the version of the content of a tensor; None if it has none."""
    if not isinstance(tensor, torch.Tensor) or tensor.layout is not torch.strided:
        return None
    return tensor.data_ptr(), 0 if tensor.is_inference() else tensor._version
