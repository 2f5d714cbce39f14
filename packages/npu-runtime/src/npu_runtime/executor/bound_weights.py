"""What an executor holds between calls: weights, what the prologue makes of them, buffers that calls change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from npu_ir import Graph, Value, WeightError
from npu_ir.core.node import InputKind, outside_names
from npu_ir.graph.binding import bind_weights
from npu_ir.interpreter.prologue import Prologue
from npu_runtime._torch import is_fake
from npu_runtime.codegen.compiler import state_of
from npu_runtime.probing.storage import laid_out


@dataclass(frozen=True, slots=True)
class Bound:
    """Weights that have been bound to a graph. Nothing in here is ever written to.

    Attributes:
        given: The tensor of every parameter, buffer and constant, as it was given.
        prologue: Evaluated.
        values: What calls read: weights, and what the prologue made of them.
        state: What the buffers hold at the beginning that calls change, in the order of `state_of`.
    """

    given: Mapping[Value, torch.Tensor]
    prologue: Prologue
    values: Mapping[Value, Any]
    state: tuple[torch.Tensor, ...]

    def state_dict(self, state: tuple[torch.Tensor, ...]) -> dict[str, torch.Tensor]:
        """Return parameters, persistent buffers and optimizer state by ``state_dict`` key; copies of those that calls change."""
        advanced = dict(zip(self._changing(), state, strict=True))
        entries = {}
        for value, tensor in self.given.items():
            argument = value.argument
            assert argument is not None
            if argument.kind is InputKind.CONSTANT or not argument.persistent:
                continue
            current = advanced[value].clone() if value in advanced else tensor.detach()
            entries.update(dict.fromkeys(outside_names(value), current))
        return entries

    def _changing(self) -> tuple[Value, ...]:
        return state_of(self.prologue.graph)


def bind(
    graph: Graph,
    weights: Mapping[str, torch.Tensor] | None,
    constants: Mapping[str, torch.Tensor] | None,
    device: torch.device,
) -> Bound:
    """Bind weights to a graph, and evaluate its prologue.

    Raises:
        WeightError: Weights are missing, unexpected, or of another shape or dtype.
        ExecutionError: A node of the prologue fails.
    """
    given = bind_weights(graph, weights, constants)
    for value, tensor in given.items():
        if not is_fake(tensor) and (device.type == "meta" or not tensor.is_meta):
            continue
        raise WeightError(
            f"the weight {value.name!r} is {'a FakeTensor' if is_fake(tensor) else 'on the device meta'}: it has no data",
            where=f"graph {graph.name!r}",
            fix="give the weights of a model that has been loaded, or the path of its checkpoint",
        )
    placed = {value: laid_out(_plain(tensor).to(device), value.type) for value, tensor in given.items()}
    prologue = Prologue(graph, placed, device)
    values = prologue.values_on(device)
    state = tuple(placed[target].clone() for target in state_of(graph))
    return Bound(given, prologue, values, state)


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor that records no gradients, and whose memory holds what it says: no lazy conjugation."""
    return tensor.detach().resolve_conj().resolve_neg()
