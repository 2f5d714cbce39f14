"""Evaluation of nodes whose inputs are all constants."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from npu_ir import OpNode
from npu_ir.core.isolation import isolated_torch_state
from npu_ir.core.storage import storage_address
from npu_ir.graph.binding import with_strides
from npu_ir.ops.execution import execute_node

_CPU = torch.device("cpu")


def evaluate(node: OpNode) -> list[torch.Tensor]:
    """Return the results of a node whose inputs are all constants, in memory of their own.

    Raises:
        ExecutionError: The op fails.
    """
    arguments = [value.argument for value in node.inputs]
    data = [
        with_strides(argument.data, value.type)
        for argument, value in zip(arguments, node.inputs, strict=True)
        if argument is not None
    ]
    device = next((item.device for item in data), _CPU)
    with isolated_torch_state(device):
        return [_copy_if_shared(result, data) for result in execute_node(node, data, device)]


def _copy_if_shared(result: torch.Tensor, data: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return a tensor that shares no memory with ``data``, in a storage that is no larger than needed.

    An expanded tensor stays expanded: an op may sum the elements of its dense copy in another order.
    """
    plain = result.resolve_conj().resolve_neg()
    is_shared = any(storage_address(item) == storage_address(plain) for item in data)
    if not is_shared and plain.untyped_storage().nbytes() <= plain.nbytes:
        return plain
    narrow = plain
    for axis, (size, step) in enumerate(zip(plain.shape, plain.stride(), strict=True)):
        narrow = narrow.narrow(axis, 0, 1) if size > 1 and step == 0 else narrow
    return narrow.clone().expand(plain.shape)
