"""Arguments of a call as inputs of a graph: checked, in order, and copied into fixed buffers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

from npu_ir import ExecutionError, Graph, TensorType
from npu_ir.core.symbol_values import SymbolValues
from npu_ir.graph.binding import bind_inputs
from npu_runtime.executor.fast_arguments import make_fast_path, positional_tuple

# Takes positional and keyword arguments; returns the tensors and the numbers among the inputs of the graph.
Binder = Callable[["tuple[Any, ...]", "Mapping[str, Any]"], "tuple[list[torch.Tensor], list[Any]]"]


def make_binder(graph: Graph, device: torch.device) -> Binder:
    """Return a function that checks the arguments of a call, and returns the inputs of the graph.

    Args:
        graph: The graph that is called.
        device: The device that it runs on.
    """
    take = make_fast_path(graph, device)
    is_tensor = [isinstance(value.type, TensorType) for value in graph.inputs]

    def bind(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[list[torch.Tensor], list[Any]]:
        arguments: Sequence[Any] | None = take(args, kwargs) if take is not None else None
        if arguments is None:
            arguments = _checked_arguments(graph, args, kwargs, device)
        pairs = list(zip(arguments, is_tensor, strict=True))
        return [item for item, tensor in pairs if tensor], [item for item, tensor in pairs if not tensor]

    return bind


def copy_tensors(fixed: Iterable[torch.Tensor], given: Iterable[torch.Tensor]) -> None:
    """Copy the tensors of a call into the fixed ones; no gradients are recorded."""
    with torch.no_grad():
        for target, item in zip(fixed, given, strict=True):
            target.copy_(item)


def _checked_arguments(
    graph: Graph, args: Sequence[Any], kwargs: Mapping[str, Any], device: torch.device
) -> list[Any]:
    bound = bind_inputs(graph, positional_tuple(args), kwargs, SymbolValues(graph.symbols))
    for value, item in bound.items():
        if isinstance(item, torch.Tensor) and item.device != device:
            raise ExecutionError(
                f"input %{value.name} is on {item.device}, the program runs on {device}",
                fix=f"move it: .to({str(device)!r})",
            )
    return [bound[value] for value in graph.inputs]
