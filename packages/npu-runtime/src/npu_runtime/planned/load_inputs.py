"""Copies of call arguments into the fixed input buffers of a planned program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from npu_ir import ExecutionError, Graph, TensorType, Value
from npu_ir.core.symbol_values import SymbolValues
from npu_ir.graph.binding import bind_inputs
from npu_runtime.codegen.call_binder import make_binder, positional_tuple

# Takes positional and keyword arguments; returns the numbers among them, in the order of the graph's inputs.
Loader = Callable[["tuple[Any, ...]", "Mapping[str, Any]"], "tuple[Any, ...]"]


def make_loader(graph: Graph, tensors: Mapping[Value, Any], device: torch.device) -> Loader:
    """Return a function that copies arguments into fixed tensors; if it raises, nothing was copied.

    Args:
        graph: The program.
        tensors: The fixed tensors of its inputs.
        device: Their device.
    """
    bind = make_binder(graph, device)
    is_tensor = [isinstance(value.type, TensorType) for value in graph.inputs]
    fixed = [tensors.get(value) for value in graph.inputs]

    def load(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
        bound = bind(args, kwargs)
        arguments = bound[0] if bound else _checked_arguments(graph, args, kwargs, device)
        with torch.no_grad():
            # Equally many: `bind` or `_checked_arguments` has checked that.
            for target, item in zip(fixed, arguments):  # noqa: B905
                if target is not None and item is not target:
                    target.copy_(item)
        return tuple([item for item, tensor in zip(arguments, is_tensor) if not tensor])  # noqa: B905

    return load


def _checked_arguments(
    graph: Graph, args: Sequence[Any], kwargs: Mapping[str, Any], device: torch.device
) -> list[Any]:
    bound = bind_inputs(graph, positional_tuple(args), kwargs, SymbolValues({}))
    for value, item in bound.items():
        if isinstance(item, torch.Tensor) and item.device != device:
            raise ExecutionError(
                f"input %{value.name} is on {item.device}, the program runs on {device}",
                fix=f"move it: .to({str(device)!r})",
            )
    return [bound[value] for value in graph.inputs]
