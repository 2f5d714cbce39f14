"""A training step as a graph, and what it was traced for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from npu_ir import Graph
from npu_ir.core.structure import unflatten
from npu_runtime._torch.tracing import Branch
from npu_runtime.training.tracing import hyperparameters
from npu_runtime.training.tracing.components import Subjects

# The argument of a step's graph that holds the numbers of its optimizers, by name.
HYPERPARAMETERS = "hyperparameters"


@dataclass(frozen=True, slots=True)
class TracedStep:
    """A training step as a graph, and what it was traced for.

    Attributes:
        graph: Takes the batch, and ``hyperparameters`` by name; its updates say what a step changes.
        state: What the state of the optimizers holds before the first step, by name.
        branches: What Python decided by the value of a hyperparameter.
        gradients: The names of the values that hold the gradients when an optimizer takes its step, by parameter.
        subjects: The modules and optimizers.
    """

    graph: Graph
    state: dict[str, torch.Tensor]
    branches: Sequence[Branch]
    gradients: Mapping[str, str]
    subjects: Subjects

    def weights(self) -> dict[str, torch.Tensor]:
        """Return what the graph is to be bound to: the tensors of the modules themselves, and the state."""
        return {**self.subjects.parameters(), **self.subjects.buffers(), **self.state}

    def hyperparameters(self) -> dict[str, float]:
        """Return the numbers of the optimizers as they are now, by name: what a call of the graph takes.

        Others may have come since: a scheduler notes down an ``initial_lr``.
        """
        optimizers = self.subjects.optimizers
        found = {**hyperparameters.fixed_numbers(optimizers), **hyperparameters.numbers(optimizers)}
        _, named = unflatten(*self.graph.call)
        return {name: found[name] for name in named[HYPERPARAMETERS] if name in found}
