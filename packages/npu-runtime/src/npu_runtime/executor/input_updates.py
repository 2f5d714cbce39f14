"""Mutated inputs: the ``updates`` option, and writing new contents back into the arguments of a call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias, get_args

import torch

from npu_ir import ExecutionError, Graph, Value
from npu_ir.core.node import InputKind
from npu_ir.core.storage import may_self_overlap, shares_memory

Updates: TypeAlias = Literal["write", "return", "ignore"]

_CHOICES = (
    'updates="write" (into the tensors that are given, as eager does), "return" (with the results)'
    ' or "ignore"'
)


class InputUpdates:
    """Handling of the new contents of mutated inputs by the calls of an executor.

    Attributes:
        choice: The ``updates`` option of the user; None if not given.
        targets: The inputs that the model writes to.
        are_dropped: Whether calls just return the results.

    Raises:
        ExecutionError: There is no such choice.
    """

    def __init__(self, graph: Graph, choice: Updates | None) -> None:
        if choice is not None and choice not in get_args(Updates):
            raise ExecutionError(f"updates={choice!r} is none of the choices", fix=f"give {_CHOICES}")
        self.choice = choice
        self._graph = graph
        self.targets = tuple(value for value in graph.updates if _is_input(value))
        self.are_dropped = choice == "ignore" or (choice != "return" and not self.targets)

    def require_choice(self) -> None:
        """Refuse a call whose writes would be dropped silently.

        Raises:
            ExecutionError: The model writes to inputs, and ``updates`` was not given.
        """
        if self.choice is None and self.targets:
            names = ", ".join(f"%{value.name}" for value in self.targets)
            raise ExecutionError(
                f"the model writes to its input{'s' * (len(self.targets) > 1)} {names},"
                " and the option updates= is not given",
                where=f"graph {self._graph.name!r}",
                fix=f"make the executor with {_CHOICES}; run() and run_flat() always return the new contents",
            )

    def contents(self, updates: Sequence[Any]) -> dict[str, torch.Tensor]:
        """Return the new content of each input that the model writes to, by name, of all that are updated."""
        new = dict(zip(self._graph.updates, updates, strict=True))
        return {value.name: new[value] for value in self.targets}

    def writable_targets(self, inputs: Sequence[Any]) -> list[torch.Tensor]:
        """Return the tensors to write to, among the inputs of a call.

        Raises:
            ExecutionError: One of them cannot be written to.
        """
        bound = dict(zip(self._graph.inputs, inputs, strict=True))
        for value in self.targets:
            require_writable(self._graph, value, bound[value])
        return [bound[value] for value in self.targets]

    def write(
        self, targets: Sequence[torch.Tensor], contents: Sequence[torch.Tensor], results: list[Any]
    ) -> None:
        """Write new contents into `writable_targets`; results in their memory are replaced by copies."""

        def apart(item: Any) -> Any:
            return item.clone() if any(shares_memory(item, target) for target in targets) else item

        results[:] = map(apart, results)
        # Those that instructions have written in place are the targets themselves.
        pairs = zip(targets, contents, strict=True)
        missing = [(target, apart(content)) for target, content in pairs if target is not content]
        with torch.no_grad():
            for target, content in missing:
                target.copy_(content)


def _is_input(value: Value) -> bool:
    return value.argument is not None and value.argument.kind is InputKind.INPUT


def require_writable(graph: Graph, target: Value, item: Any) -> None:
    """Raise if the tensor that a call gives for an input cannot be written to.

    Raises:
        ExecutionError: It says why, and how to fix it.
    """
    problem = find_write_problem(item)
    if problem:
        raise ExecutionError(
            f"the model writes to its input %{target.name}, but the tensor that is given {problem[0]}",
            where=f"graph {graph.name!r}",
            fix=problem[1],
        )


def find_write_problem(item: Any) -> tuple[str, str] | None:
    """Return the reason that a tensor cannot be written to, and a fix; None if there is none known here."""
    if not isinstance(item, torch.Tensor) or item.layout is not torch.strided:
        return None
    if may_self_overlap(item.shape, item.stride()):
        return "is expanded, or its elements share memory otherwise", "pass a copy of it (clone)"
    if item.requires_grad and torch.is_grad_enabled():
        return (
            "requires gradients, and none are recorded here",
            "call it under torch.no_grad(), or pass x.detach()",
        )
    if item.is_inference() and not torch.is_inference_mode_enabled():
        return (
            "was made in inference mode",
            "call it under torch.inference_mode(), or pass a copy of it (clone)",
        )
    return None
