"""`TracedStep`: a training step as a graph, converted from the FX graph of its trace."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch.fx import GraphModule, Node

from npu_ir import Graph
from npu_ir.capture.graph_module import convert_graph_module
from npu_ir.core.node import Argument, InputKind
from npu_ir.core.structure import Structure, unflatten
from npu_runtime.errors import TracingError
from npu_runtime.training.tracing import hyperparameters, random_draws
from npu_runtime.training.tracing.components import TrainingComponents
from npu_runtime.training.tracing.substitution import ParameterSubstitution

# The argument of a step's graph that holds the numbers of its optimizers, by name.
HYPERPARAMETERS = "hyperparameters"


class StepBranch(Protocol):
    """A branch that Python took by the value of a hyperparameter."""

    @property
    def text(self) -> str:
        """The condition that held."""

    @property
    def names(self) -> frozenset[str]:
        """The names of the hyperparameters in it."""

    def holds(self, values: Mapping[str, float]) -> bool:
        """Return whether the same branch is taken for other values of the numbers, given by name."""

    def relation(self) -> tuple[str, str | float, str | float] | None:
        """Return the condition as a relation of two names or numbers; None if it is not one."""


@dataclass(frozen=True, slots=True)
class TracedStep:
    """A training step as a graph, with its initial state and training components.

    Attributes:
        graph: Takes the batch, and ``hyperparameters`` by name; its updates are the mutated state.
        state: The state of the optimizers before the first step, by name.
        branches: The Python branches that the trace took on values of hyperparameters.
        components: The training components.
    """

    graph: Graph
    state: dict[str, torch.Tensor]
    branches: Sequence[StepBranch]
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


def extract_gradients(module: GraphModule, parameters: Sequence[str], previous: int) -> None:
    """Remove gradients from inputs and outputs of a module; name the computed ones after their parameters.

    Args:
        module: Its last placeholders are gradients from before the step; it returns results, and gradients.
        parameters: The names of the parameters whose gradients it returns.
        previous: The number of placeholders that are gradients.

    Raises:
        TracingError: The step reads a gradient from before it.
    """
    placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
    old = placeholders[len(placeholders) - previous :]
    if any(node.users for node in old):
        raise TracingError(
            "the step adds to gradients that are there before it: gradients are not kept from step to step",
            fix="call optimizer.zero_grad() in the step, not with set_to_none=False; "
            "to accumulate, call backward() several times in one step",
        )
    for node in old:
        module.graph.erase_node(node)
    output = next(node for node in module.graph.nodes if node.op == "output")
    results, gradients = output.args[0]
    output.args = (results,)
    named: set[Node] = set()
    for key, node in zip(parameters, gradients, strict=True):
        if isinstance(node, Node) and node.op == "call_function" and node not in named:
            node._rename(f"{key.replace('.', '_')}_grad")
            named.add(node)
    module.graph.eliminate_dead_code(is_impure_node=_is_needed)


def _is_needed(node: Node) -> bool:
    is_copy = node.target is torch.ops.aten.copy_.default
    return node.op in ("placeholder", "output") or is_copy or random_draws.is_random(node)


def build_step_graph(
    module: GraphModule,
    substitution: ParameterSubstitution,
    batch: tuple[Structure, Sequence[Any]],
    results: Structure,
    name: str,
) -> Graph:
    """Return the graph of a traced step.

    Args:
        module: Functional; it takes the weights, the numbers, and the tensors of the batch.
        substitution: The weights and numbers it was traced for.
        batch: The structure of ``(args, kwargs)``, and its leaves.
        results: The structure of the results of the step.
        name: The name of the graph.
    """
    structure, leaves = batch
    tensors = [f"batch{index}" for index in range(sum(isinstance(item, torch.Tensor) for item in leaves))]
    arguments = [
        *_make_arguments(substitution.weights, substitution.components),
        *(Argument(InputKind.INPUT, key) for key in (*substitution.numbers, *tensors)),
    ]
    graph = convert_graph_module(module, name=name, arguments=arguments)
    inputs: dict[str, Any] = {
        value.argument.target: value for value in graph.inputs if value.argument is not None
    }
    for key, number in substitution.numbers.items():
        if not inputs[key].use_count:  # of a group without gradients: a call does not take it
            graph.fix_input(inputs.pop(key), number)
    names = iter(tensors)
    args, kwargs = unflatten(
        structure, [inputs[next(names)] if isinstance(item, torch.Tensor) else item for item in leaves]
    )
    numbers = {
        **hyperparameters.fixed_numbers(substitution.components.optimizers),
        **{key: inputs[key] for key in substitution.numbers if key in inputs},
    }
    graph.set_call(args, {**kwargs, HYPERPARAMETERS: numbers})
    graph.set_outputs(unflatten(results, list(graph.outputs)))
    for entry in list(graph.optimizer_state.values()):
        if not entry.use_count and entry not in graph.updates:  # state of a parameter without a gradient
            graph.erase_argument(entry)
    return graph


def _make_arguments(
    weights: Mapping[str, torch.Tensor], components: TrainingComponents
) -> Iterator[Argument]:
    parameters, buffers, aliases = components.parameters(), components.buffers(), components.aliases()
    for name, tensor in weights.items():
        if name in parameters:
            yield Argument(InputKind.PARAMETER, name, aliases[name])
        elif name in buffers:
            persistent = components.is_persistent(name)
            data = None if persistent or tensor.is_meta else tensor.detach().clone()
            yield Argument(InputKind.BUFFER, name, aliases[name], persistent, data)
        else:
            yield Argument(InputKind.STATE, name)
