"""Selection of the weights that a graph needs."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from npu_ir.core.node import Argument, InputKind, Value, external_names
from npu_ir.core.types import TensorType
from npu_ir.graph.binding import bind_weights, flatten_wrappers
from npu_ir.graph.graph import Graph
from npu_ir.serial.tensor_layout import require_storable


def select_weights(graph: Graph, weights: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the tensors of the parameters, buffers and optimizer state of ``graph``, tied ones once.

    Tied weights get their first name. A buffer that is not in the ``state_dict`` may be left out.

    Raises:
        WeightError: The weights do not fit; lists every problem.
        SerializationError: A tensor is of a kind that cannot be stored.
    """
    weights = flatten_wrappers(weights)
    for name, tensor in weights.items():
        if isinstance(tensor, torch.Tensor):
            require_storable(tensor, name)
    left_out = {
        target: torch.empty(buffer.type.static_shape, dtype=buffer.type.dtype, device="meta")
        for target, buffer in graph.buffers.items()
        if isinstance(buffer.type, TensorType) and _is_optional(buffer, weights)
    }
    fitting = {}
    for value, tensor in bind_weights(graph, weights, left_out).items():
        argument = _argument(value)
        from_weights = argument.kind is not InputKind.CONSTANT and argument.data is None
        if from_weights and argument.target not in left_out:
            fitting[argument.target] = tensor
    return fitting


def _is_optional(buffer: Value, weights: Mapping[str, torch.Tensor]) -> bool:
    argument = _argument(buffer)
    has_weight = any(key in weights for key in external_names(buffer))
    return not argument.persistent and argument.data is None and not has_weight


def _argument(value: Value) -> Argument:
    assert value.argument is not None
    return value.argument
