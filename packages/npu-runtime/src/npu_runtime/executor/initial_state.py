"""The initial content of mutated state: kept for `reset`, in one element where all elements are one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from npu_ir import Graph, TensorType, Value
from npu_ir.core.node import external_names
from npu_ir.core.storage import has_overlapping_elements
from npu_ir.core.types import Type
from npu_runtime.codegen.compiler import mutated_state
from npu_runtime.probing.storage import with_stated_strides

Tensors = Mapping[str, torch.Tensor]


def repeated_state(graph: Graph, device: torch.device, *given: Tensors | None) -> dict[Value, torch.Tensor]:
    """Return the mutated state whose tensor repeats one element (``torch.zeros(()).expand(shape)``).

    Such a tensor stays one element, on the device, so that the only memory of its shape is that of the state
    itself.
    """
    found = {}
    for value in mutated_state(graph):
        tensors = (
            source[name] for source in given if source for name in external_names(value) if name in source
        )
        tensor = next(tensors, None)
        if tensor is not None and _repeats_one_element(tensor, value.type):
            element = tensor.detach()[(0,) * tensor.dim()].resolve_conj().resolve_neg()
            found[value] = element.clone().to(device).expand(tensor.shape)
    return found


def without_data(given: Tensors | None, repeated: Mapping[Value, torch.Tensor]) -> dict[str, Any]:
    """Return weights, of which those that repeat an element have a shape and a dtype only."""
    names = {name for value in repeated for name in external_names(value)}
    return {name: item.to("meta") if name in names else item for name, item in (given or {}).items()}


def fresh_copy(content: torch.Tensor, type: Type) -> torch.Tensor:
    """Return the content in new memory; what repeats one element gets the strides of its type."""
    return with_stated_strides(content, type) if _repeats_one_element(content, type) else content.clone()


def _repeats_one_element(tensor: Any, type: Type) -> bool:
    return (
        isinstance(tensor, torch.Tensor)
        and tensor.layout is torch.strided
        and tensor.numel() > 1
        and not any(tensor.stride())
        and isinstance(type, TensorType)
        and not type.symbols
        and not has_overlapping_elements(type)
    )
