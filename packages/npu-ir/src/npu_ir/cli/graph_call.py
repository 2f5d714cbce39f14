"""The arguments that a graph is run on: given ones, and random data for the rest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from npu_ir.cli.input_text import Input
from npu_ir.cli.model_call import Fill, realize
from npu_ir.cli.quantities import counted
from npu_ir.errors import UsageError
from npu_ir.graph import Graph
from npu_ir.node import Value
from npu_ir.structure import Structure, unflatten
from npu_ir.types import TensorType


@dataclass(frozen=True, slots=True)
class GraphCall:
    """A call of a graph.

    Attributes:
        args: Positional arguments.
        kwargs: Keyword arguments.
        invented: The inputs that were not given, and hold random data.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    invented: tuple[Value, ...]


def graph_arguments(graph: Graph, inputs: Sequence[Input], fill: Fill) -> GraphCall:
    """Return how to call ``graph`` with these inputs.

    An input with a name is a keyword argument, or else the input of the graph that has this name.

    Args:
        graph: Any graph.
        inputs: What is given.
        fill: Makes the tensors that are not.

    Raises:
        UsageError: The graph has no such argument, or a file cannot be read.
    """
    return _Call(graph, inputs, fill).build()


class _Call:
    """One call while it is put together."""

    def __init__(self, graph: Graph, inputs: Sequence[Input], fill: Fill) -> None:
        self._graph = graph
        self._fill = fill
        self._positional = [item for item in inputs if not item.name]
        self._named = {item.name: item for item in inputs if item.name}
        self._tensors: dict[Value, Any] = {}
        self._invented: list[Value] = []
        self._unused = set(self._named)

    def build(self) -> GraphCall:
        structure, leaves = self._graph.call
        args, kwargs = structure.children
        self._require_known(args, kwargs)
        pending = iter(leaves)
        values = [
            self._argument(child, pending, given)
            for child, given in zip_longest(args.children, self._positional)
        ]
        named = {
            name: self._argument(child, pending, self._named.get(name))
            for name, child in zip(kwargs.context, kwargs.children, strict=True)
        }
        if self._unused:
            raise UsageError(f"input {min(self._unused)!r} is given twice: by position and by name")
        return GraphCall(tuple(values), named, tuple(self._invented))

    def _require_known(self, args: Structure, kwargs: Structure) -> None:
        expected = f"the graph takes {', '.join(map(repr, self._graph.inputs)) or 'no tensors'}"
        if len(self._positional) > len(args.children):
            raise UsageError(
                f"{counted(len(self._positional), 'positional input')} given, the graph takes {len(args.children)}",
                fix=f"give the others by name (--input NAME=VALUE); {expected}",
            )
        for name in self._named:
            if name not in kwargs.context and name not in {value.name for value in self._graph.inputs}:
                raise UsageError(f"the graph has no input {name!r}", fix=expected)

    def _argument(self, structure: Structure, leaves: Iterator[Any], given: Input | None) -> Any:
        """Return one argument, and leave ``leaves`` behind its own."""
        own = [next(leaves) for _ in range(structure.num_leaves)]
        if given is not None:
            return self._realize(given)
        return unflatten(structure, [self._leaf(leaf) for leaf in own])

    def _leaf(self, leaf: Any) -> Any:
        if not isinstance(leaf, Value):
            return leaf
        if leaf not in self._tensors:
            self._tensors[leaf] = self._tensor(leaf)
        return self._tensors[leaf]

    def _tensor(self, value: Value) -> Any:
        if value.name in self._named:
            return self._realize(self._named[value.name])
        if not isinstance(value.type, TensorType):
            raise UsageError(f"input {value!r} is not given", fix=f"--input {value.name}=VALUE")
        self._invented.append(value)
        return self._fill(value.type)

    def _realize(self, given: Input) -> Any:
        self._unused.discard(given.name)
        return realize(given, self._fill)
