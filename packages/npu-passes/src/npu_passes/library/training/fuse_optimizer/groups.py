"""Steps of single parameters, the groups of them that become one op, and the conditions for that."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from npu_ir import OpNode, TensorType, Value
from npu_passes.library.training.fuse_optimizer.step_patterns import Number, number_nodes


@dataclass(frozen=True, slots=True)
class Chain:
    """Step of one parameter."""

    op_type: str  # the op that computes such a step
    # By argument of this op, the tensors that the step reads; None for a list that stays empty.
    tensors: Mapping[str, Value | None]
    results: Mapping[str, Value]  # by argument, the new content of these tensors
    numbers: Mapping[str, Number]  # by argument, the hyperparameters
    flags: Mapping[str, bool]  # by argument, the boolean options
    root: OpNode  # the node that computes the new parameter
    nodes: tuple[OpNode, ...]  # all nodes that compute the step, except for those that compute numbers

    @property
    def key(self) -> Hashable:
        """Key that is equal for chains that one op can compute."""
        return self.op_type, tuple(self.numbers.values()), tuple(self.flags.values())


class Group:
    """Chains that may become one op."""

    def __init__(self, chains: Sequence[Chain], places: Mapping[OpNode, int]) -> None:
        self.chains = chains
        self._places = places
        self._own = {node: None for chain in chains for node in chain.nodes}
        self.root = chains[0].root  # the node that computes the first new parameter
        numbers = number_nodes([value for node in self._own for value in node.inputs])
        # The nodes that compute the steps and their numbers, in the order of the graph.
        self.nodes = sorted({**self._own, **dict.fromkeys(numbers)}, key=places.__getitem__)

    @property
    def op_type(self) -> str:
        return self.chains[0].op_type

    @property
    def rule(self) -> str:
        """Name of the rewrite: ``adam`` or ``sgd``."""
        return self.op_type.split(".")[1].removesuffix("_step")

    @property
    def arguments(self) -> dict[str, Any]:
        """Arguments of the op that computes all the steps."""
        first = self.chains[0]
        lists = {
            name: [value for chain in self.chains if (value := chain.tensors[name]) is not None]
            for name in first.tensors
        }
        return {**lists, **first.numbers, **first.flags}

    @property
    def results(self) -> list[Value]:
        """New content of the tensors, in the order of the results of that op."""
        return [chain.results[name] for name in self.chains[0].results for chain in self.chains]

    @property
    def problem(self) -> str | None:
        """Reason why one op cannot compute these steps; None if it can."""
        if any(chain.key != self.chains[0].key for chain in self.chains):
            return "its tensors are moved by different numbers"
        parameters = {chain.tensors["params"] for chain in self.chains}
        if len(parameters) < len(self.chains):
            return "it moves a parameter twice"
        mixed = next(filter(None, map(_type_problem, self.chains)), None)
        return self._use_problem() if mixed is None else mixed

    def _use_problem(self) -> str | None:
        """Return the reason why another reader of the values prevents the fusion; None if none does."""
        # The fused op stands at the last node, so every other reader must come after it.
        results = set(self.results)
        last = self._places[self.nodes[-1]]
        for node in self._own:
            for value in node.outputs:
                for user, _ in value.uses:
                    if user in self._own:
                        continue
                    if value not in results:
                        return f"%{value.name} is read by {_name_of(user)}, too"
                    if user is not None and self._places[user] < last:
                        return f"%{value.name} is read by {_name_of(user)} before the whole step is done"
        return None


def _name_of(user: OpNode | None) -> str:
    return "the results" if user is None else repr(user.name)


def _type_problem(chain: Chain) -> str | None:
    """Return the tensors of a chain whose types do not match; None if all do."""
    parameter = chain.tensors["params"]
    assert parameter is not None
    type = parameter.type
    if not isinstance(type, TensorType) or not type.dtype.is_floating_point:
        return f"%{parameter.name} is {type}"
    for name, value in chain.tensors.items():
        if value is not None and name != "steps" and not type.same_shape_and_dtype(value.type):
            return f"%{value.name} is {value.type}, and %{parameter.name} is {type}"
    for name, value in chain.results.items():
        old = chain.tensors[name]
        if old is None or value.type != old.type:
            return f"%{value.name} is {value.type}, and was {None if old is None else old.type}"
    return None
