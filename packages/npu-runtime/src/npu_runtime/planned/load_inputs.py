"""Arguments of a call as inputs of a graph: checked, in order, and copied into fixed buffers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from npu_ir import ExecutionError, Graph, TensorType, Value
from npu_ir._torch.fake import is_fake
from npu_ir.core.symbol_values import SymbolValues
from npu_ir.graph.binding import bind_inputs, flatten_arguments
from npu_ir.graph.requirement import positional_tuple
from npu_runtime.codegen.call_binder import make_binder
from npu_runtime.probing.storage import with_stated_strides


class CallInputs:
    """The inputs of a graph in its calls: tensors, for its fixed buffers, and numbers."""

    def __init__(self, graph: Graph, device: torch.device) -> None:
        self._graph = graph
        self._device = device
        self._bind = make_binder(graph, device)
        is_tensor = [isinstance(value.type, TensorType) for value in graph.inputs]
        self._tensors = [index for index, tensor in enumerate(is_tensor) if tensor]
        self._numbers = [index for index, tensor in enumerate(is_tensor) if not tensor]

    def of(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[torch.Tensor], list[Any]]:
        """Return the tensors and the numbers of a call, each in the order of the graph.

        Raises:
            ExecutionError: The arguments do not fit the graph.
        """
        args = positional_tuple(args)
        bound = self._bind(args, kwargs)
        inputs = self._checked(args, kwargs) if bound is None else bound[0]
        return [inputs[index] for index in self._tensors], [inputs[index] for index in self._numbers]

    def _checked(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Sequence[Any]:
        _require_no_fakes(self._graph, args, kwargs)
        found = bind_inputs(self._graph, args, kwargs, SymbolValues(self._graph.symbols))
        bound = {value: with_stated_strides(item, value.type) for value, item in found.items()}
        for value, item in bound.items():
            if isinstance(item, torch.Tensor) and item.device != self._device:
                raise ExecutionError(
                    f"input %{value.name} is on {item.device}, the program runs on {self._device}",
                    fix=f"move it: .to({str(self._device)!r})",
                )
        if self._graph.updates:  # what a step writes to is the tensor itself, whatever its strides
            items = zip(self._graph.call[1], flatten_arguments(self._graph, args, kwargs), strict=True)
            bound |= {
                leaf: item for leaf, item in items if isinstance(leaf, Value) and leaf in self._graph.updates
            }
        return [bound[value] for value in self._graph.inputs]


def _require_no_fakes(graph: Graph, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Refuse arguments that are FakeTensors.

    Raises:
        ExecutionError: It names the input.
    """
    for leaf, item in zip(graph.call[1], flatten_arguments(graph, args, kwargs), strict=True):
        if isinstance(leaf, Value) and isinstance(item, torch.Tensor) and is_fake(item):
            raise ExecutionError(
                f"input %{leaf.name} is a FakeTensor: it has no data",
                where=f"graph {graph.name!r}",
                fix="call it with ordinary tensors, outside of FakeTensorMode",
            )


def copy_tensors(fixed: Iterable[torch.Tensor], given: Iterable[torch.Tensor]) -> None:
    """Copy the tensors of a call into the fixed ones; no gradients are recorded."""
    with torch.no_grad():
        for target, item in zip(fixed, given, strict=True):
            target.copy_(item)
