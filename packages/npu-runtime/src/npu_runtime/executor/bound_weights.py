"""Bound weights of an executor: tensors by value, the evaluated prologue, initial mutated state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from npu_ir import Graph, Value, WeightError
from npu_ir._torch.fake import is_fake
from npu_ir.core.node import InputKind, external_names
from npu_ir.graph.binding import bind_weights
from npu_ir.interpreter.prologue import Prologue
from npu_runtime._torch.tensors import find_data_problem
from npu_runtime.codegen.compiler import mutated_state
from npu_runtime.executor.freed_memory import release_after_prologue
from npu_runtime.executor.initial_state import repeated_state, without_data
from npu_runtime.probing.storage import with_stated_strides


@dataclass(frozen=True, slots=True)
class BoundWeights:
    """Weights bound to a graph. These tensors are never written to.

    Attributes:
        tensors: The tensor of every parameter, buffer and constant, as passed by the caller.
        prologue: The evaluated prologue.
        values: The tensors that calls read: weights and prologue outputs.
        state: The initial mutated state, in the order of `mutated_state`. A tensor of one repeated element
            (`repeated_state`) stays one.
    """

    tensors: Mapping[Value, torch.Tensor]
    prologue: Prologue
    values: Mapping[Value, Any]
    state: tuple[torch.Tensor, ...]

    def state_dict(self, state: tuple[torch.Tensor, ...]) -> dict[str, torch.Tensor]:
        """Return all persistent tensors by ``state_dict`` key, with ``state`` as content of mutated ones.

        They are parameters, buffers and optimizer state; mutated ones are copies.
        """
        advanced = dict(zip(self._mutated_values(), state, strict=True))
        entries = {}
        for value, tensor in self.tensors.items():
            argument = value.argument
            assert argument is not None
            if argument.kind is InputKind.CONSTANT or not argument.persistent:
                continue
            current = advanced[value].clone() if value in advanced else tensor.detach()
            entries.update(dict.fromkeys(external_names(value), current))
        return entries

    def _mutated_values(self) -> tuple[Value, ...]:
        return mutated_state(self.prologue.graph)


def bind(
    graph: Graph,
    weights: Mapping[str, torch.Tensor] | None,
    constants: Mapping[str, torch.Tensor] | None,
    device: torch.device,
    share: BoundWeights | None = None,
) -> BoundWeights:
    """Bind weights to a graph, and evaluate its prologue; nodes that ``share`` has evaluated are not run.

    Raises:
        WeightError: Weights are missing, unexpected, or of another shape or dtype.
        ExecutionError: A node of the prologue fails.
    """
    repeated = repeated_state(graph, device, weights, constants)
    given = bind_weights(graph, without_data(weights, repeated), without_data(constants, repeated))
    given |= repeated
    named = {value.name: tensor for value, tensor in given.items()}
    require_data(graph, named, is_meta=device.type == "meta")
    placed = {
        value: place_weight(value, tensor, device) for value, tensor in given.items() if value not in repeated
    }
    prologue = Prologue(graph, placed, device, share=None if share is None else share.prologue)
    values = prologue.values_on(device)
    release_after_prologue(values)
    state = tuple(
        repeated[target] if target in repeated else placed[target].clone() for target in mutated_state(graph)
    )
    return BoundWeights(given, prologue, values, state)


def require_data(graph: Graph, weights: Mapping[str, Any], *, is_meta: bool = False) -> None:
    """Refuse weights without data.

    Args:
        graph: Their graph.
        weights: The weights by name.
        is_meta: They are for the device ``meta``, where no tensor has any.

    Raises:
        WeightError: It names the first one.
    """
    for name, tensor in weights.items():
        problem = find_data_problem(tensor)
        if problem and not (is_meta and tensor.is_meta and not is_fake(tensor)):
            raise WeightError(
                f"the weight {name!r} is {problem}: it has no data",
                where=f"graph {graph.name!r}",
                fix="give the weights of a model that has been loaded, or the path of its checkpoint",
            )


def place_weight(value: Value, tensor: torch.Tensor, device: torch.device) -> Any:
    """Return a weight as calls read it: detached, on the device, in stated strides, without lazy bits."""
    return with_stated_strides(tensor.detach().resolve_conj().resolve_neg().to(device), value.type)
