"""Evaluation of the prologue of a graph, and the values that its body reads besides call inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from npu_ir._torch.tensors import negated_view
from npu_ir.core.isolation import isolated_torch_state
from npu_ir.core.node import OpNode, Value
from npu_ir.core.storage import storage_address
from npu_ir.core.symbol_values import SymbolValues
from npu_ir.graph.graph import Graph
from npu_ir.interpreter.recipes import Recipes
from npu_ir.interpreter.run_nodes import Observer, run_nodes


class Prologue:
    """The evaluated prologue of a graph: the weights and prologue results that calls read.

    Args:
        graph: Any program.
        weights: The tensor of every parameter, buffer, optimizer state and constant.
        device: The device of tensors that the graph creates on ``meta``.
        observe: Called after each node, with the node and its outputs.
        share: The prologue of a graph with the same weights: results of equal nodes are taken from it.

    Raises:
        ExecutionError: A node fails.
    """

    def __init__(
        self,
        graph: Graph,
        weights: dict[Value, Any],
        device: torch.device,
        observe: Observer | None = None,
        share: Prologue | None = None,
    ) -> None:
        self.graph = graph
        self._recipes = Recipes(weights)
        self._shared = {} if share is None else share._results_by_recipe()
        self._device = device
        # The data of constants is shared by the graph and its clones: a result must not alias it.
        of_graph = {storage_address(value.data) for value in weights}
        self._outside = {storage_address(tensor) for tensor in weights.values()} - of_graph
        self._of_graph = of_graph
        self._values = self._evaluate(dict(weights), observe)

    def values_on(self, device: torch.device) -> dict[Value, Any]:
        """Return the values that the body reads; without weights, recomputed if the device changes.

        With weights, callers always pass the device of the weights.
        """
        if device != self._device:
            self._device = device
            self._values = self._evaluate({}, None)
        return self._values

    def _evaluate(self, values: dict[Value, Any], observe: Observer | None) -> dict[Value, Any]:
        nodes = self._take_shared(values)
        with isolated_torch_state(self._device):
            run_nodes(nodes, values, self._device, SymbolValues(self.graph.symbols), observe)
        # A result may alias a weight of the caller, as in the model, but not memory that only this object
        # owns, since the next call reads that again.
        self._own = {
            storage_address(values[value])
            for node in self.graph.prologue
            for value in node.outputs
            if value in values
        }
        self._own = (self._own | self._of_graph) - (self._outside | {None})
        live = {
            value: item
            for value, item in values.items()
            if any(node is None or not node.in_prologue for node, _ in value.uses)
        }
        # Sparse tensors have no single storage, so they are compared by identity.
        made = [item for value, item in live.items() if value.producer is not None]
        tensors = [item for item in made if isinstance(item, torch.Tensor)]
        self._own_sparse = {id(item) for item in tensors if item.layout is not torch.strided}
        return live

    def _take_shared(self, values: dict[Value, Any]) -> list[OpNode]:
        """Add the values that another prologue has, and return the nodes that make the others."""
        if not self._shared:
            return list(self.graph.prologue)
        needed: set[Value] = set()
        nodes: list[OpNode] = []
        for node in reversed(self.graph.prologue):
            for value in node.outputs:
                is_read = value in needed or any(
                    user is None or not user.in_prologue for user, _ in value.uses
                )
                recipe = self._recipes.of(value) if is_read else None
                if recipe in self._shared:
                    values[value] = self._shared[recipe]
                elif is_read and node not in nodes:
                    nodes.append(node)
                    needed.update(node.inputs)
        return nodes[::-1]

    def _results_by_recipe(self) -> dict[str | None, Any]:
        made = {value: item for value, item in self._values.items() if value.producer is not None}
        results = {self._recipes.of(value): item for value, item in made.items()}
        results.pop(None, None)
        return results

    def copy_shared_results(self, items: Sequence[Any]) -> list[Any]:
        """Return results of a call, with copies of those that share memory with prologue values."""
        copies: dict[int | None, torch.UntypedStorage] = {}
        return [
            item.clone()
            if id(item) in self._own_sparse
            else self._copy_result(item, copies)
            if storage_address(item) in self._own
            else item
            for item in items
        ]

    def _copy_result(
        self, item: torch.Tensor, copies: dict[int | None, torch.UntypedStorage]
    ) -> torch.Tensor:
        """Return a copy of a tensor; copies of tensors that share memory share memory, too."""
        memory = item.untyped_storage()
        copy = copies.setdefault(
            storage_address(item), memory if storage_address(item) in copies else _copy(memory)
        )
        result = torch.empty(0, dtype=item.dtype, device=item.device)
        result.set_(copy, item.storage_offset(), item.shape, item.stride())
        # PyTorch conjugates and negates lazily: the storage holds the values before that.
        result = result.conj() if item.is_conj() else result
        return negated_view(result) if item.is_neg() else result


def _copy(memory: torch.UntypedStorage) -> torch.UntypedStorage:
    copy: torch.UntypedStorage = memory.clone()  # type: ignore[no-untyped-call]
    return copy
