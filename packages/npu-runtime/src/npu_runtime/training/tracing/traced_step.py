"""`TracedStep`: a training step as a graph, with its initial state and training components."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from npu_ir import Graph
from npu_ir.core.structure import unflatten
from npu_runtime._torch.tracing import Branch
from npu_runtime.training.tracing import hyperparameters
from npu_runtime.training.tracing.components import TrainingComponents

# The argument of a step's graph that holds the numbers of its optimizers, by name.
HYPERPARAMETERS = "hyperparameters"


@dataclass(frozen=True, slots=True)
class TracedStep:
    """A training step as a graph, with its initial state and training components.

    Attributes:
        graph: Takes the batch, and ``hyperparameters`` by name; its updates are the mutated state.
        state: The state of the optimizers before the first step, by name.
        branches: The Python branches that the trace took on values of hyperparameters.
        gradients: The names of the values that hold the gradients at the optimizer step, by parameter.
        components: The training components.
    """

    graph: Graph
    state: dict[str, torch.Tensor]
    branches: Sequence[Branch]
    gradients: Mapping[str, str]
    components: TrainingComponents

    def weights(self) -> dict[str, torch.Tensor]:
        """Return the tensors to bind the graph to, by name: those of the modules, and the initial state."""
        return {**self.components.parameters(), **self.components.buffers(), **self.state}

    def hyperparameters(self) -> dict[str, float]:
        """Return the current numbers of the optimizers that a call of the graph takes, by name.

        Groups may have gained others since the trace: a scheduler adds an ``initial_lr``.
        """
        optimizers = self.components.optimizers
        current = {**hyperparameters.fixed_numbers(optimizers), **hyperparameters.open_numbers(optimizers)}
        _, named = unflatten(*self.graph.call)
        return {name: current[name] for name in named[HYPERPARAMETERS] if name in current}
