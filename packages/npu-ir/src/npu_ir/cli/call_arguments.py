"""Arguments of a call of a model or a graph: those of the command line, and random data for others."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

import torch

from npu_ir.cli.input_text import FileReference, Input, parse_inputs, parse_sizes, sizes_text
from npu_ir.cli.quantities import count_text
from npu_ir.cli.tensor_files import read_input
from npu_ir.core.node import Value
from npu_ir.core.structure import Structure, flatten, unflatten
from npu_ir.core.symbol_values import SymbolValues
from npu_ir.core.types import TensorType
from npu_ir.core.user_code import required_names, signature_mismatch
from npu_ir.errors import UsageError
from npu_ir.graph.graph import Graph
from npu_ir.interpreter.random_data import make_input, random_tensor, translated_errors
from npu_ir.interpreter.size_choice import choose_sizes
from npu_ir.ops.execution import is_of_type
from npu_ir.serial import load_ir

# Returns a tensor of a type.
Fill = Callable[[TensorType], torch.Tensor]


def empty_tensor(type: TensorType) -> torch.Tensor:
    """Return a tensor of ``type`` without data, on ``meta``, for capture from types."""
    with translated_errors(type):
        if type.strides is None:
            return torch.empty(type.static_shape, dtype=type.dtype, layout=type.layout, device="meta")
        return torch.empty_strided(type.static_shape, type.static_strides, dtype=type.dtype, device="meta")


def realize_input(item: Input, fill: Fill) -> Any:
    """Return the argument that an input describes; ``fill`` returns the tensors of leaves that are types."""

    def leaf(part: Any) -> Any:
        if isinstance(part, TensorType):
            return fill(part)
        return read_input(part, item.name) if isinstance(part, FileReference) else part

    return unflatten(item.structure, [leaf(part) for part in item.leaves])


def model_arguments(inputs: Sequence[Input], fill: Fill) -> tuple[tuple[Any, ...], dict[str, Any]]:
    args = tuple(realize_input(item, fill) for item in inputs if not item.name)
    kwargs = {item.name: realize_input(item, fill) for item in inputs if item.name}
    return args, kwargs


def require_arguments(model: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Refuse inputs that do not fit the model's signature."""
    wrong_call = signature_mismatch(model.forward, args, kwargs)
    if wrong_call is None:
        return
    missing = [name for name in required_names(model.forward)[len(args) :] if name not in kwargs]
    options = [f'-i "{name}=f32[2,3]"' for name in missing]
    raise UsageError(
        f"forward of {type(model).__name__} cannot be called so: {wrong_call}",
        fix=f"add {' '.join(options)}, with its own dtype and shape"
        if options
        else "leave out what it does not take",
    )


@dataclass(frozen=True, slots=True)
class GraphCall:
    """A call of a graph."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    random_inputs: tuple[Value, ...]  # those that were not given, and hold random data
    sizes: dict[str, int] = field(default_factory=dict)  # that the given inputs do not determine

    def facts(self, options: argparse.Namespace) -> dict[str, str]:
        """Return what was made up for the call, as lines to print by their captions."""
        facts = {}
        if self.sizes:
            facts["sizes"] = sizes_text(self.sizes, parse_sizes(options.size))
        if self.random_inputs:
            facts["random data"] = f"{', '.join(map(repr, self.random_inputs))}, seed {options.seed}"
        return facts


def load_call(options: argparse.Namespace) -> tuple[Graph, GraphCall]:
    """Return the graph of ``options.file``, and its call with the arguments and random data of the options.

    Raises:
        UsageError: The graph has no such input or size.
    """
    given = parse_inputs(options.input), parse_sizes(options.size)
    options.progress.stage("reading the graph")
    graph = load_ir(options.file)
    return graph, make_call(graph, *given, options.seed, options.int_high)


def make_call(
    graph: Graph, inputs: Sequence[Input], sizes: Mapping[str, int], seed: int, int_high: int
) -> GraphCall:
    """Return the call of ``graph`` with these inputs, and random data for others."""
    generator = torch.Generator().manual_seed(seed)
    return graph_arguments(graph, inputs, lambda type: random_tensor(type, generator, int_high), sizes)


def graph_arguments(
    graph: Graph, inputs: Sequence[Input], fill: Fill, sizes: Mapping[str, int] | None = None
) -> GraphCall:
    """Return the call of ``graph`` with these inputs; ``fill`` returns the tensors that are not given.

    An input with a name is a keyword argument, or else the graph's input of this name. ``sizes`` are values
    of symbols, for the tensors that are not given.

    Raises:
        UsageError: The graph has no such argument or size, or a file cannot be read.
    """
    return _CallBuilder(graph, inputs, fill, sizes or {}).build()


@dataclass(frozen=True, slots=True)
class _Argument:
    """One argument of the call: its structure, the graph's leaves in it, and the input given for it."""

    structure: Structure
    leaves: tuple[Any, ...]
    given: Input | None


class _CallBuilder:
    """Builder of one call."""

    def __init__(self, graph: Graph, inputs: Sequence[Input], fill: Fill, sizes: Mapping[str, int]) -> None:
        self._graph = graph
        self._fill = fill
        self._wanted = sizes
        self._positional = [item for item in inputs if not item.name]
        self._named = {item.name: item for item in inputs if item.name}
        self._tensors: dict[Value, Any] = {}
        self._invented: list[Value] = []
        self._symbols = SymbolValues(graph.symbols)

    def build(self) -> GraphCall:
        args, kwargs = self._graph.call[0].children
        self._require_known(args, kwargs)
        arguments = self._pair_arguments(args, kwargs)
        given = {
            index: realize_input(item.given, self._fill)
            for index, item in enumerate(arguments)
            if item.given is not None
        }
        self._realize_named_inputs([item for item in arguments if item.given is None])
        self._infer_symbols([(arguments[index], item) for index, item in given.items()])
        sizes = choose_sizes(self._graph, self._symbols.values, self._wanted)
        self._symbols.values.update(sizes)
        values = [
            given[index]
            if index in given
            else unflatten(argument.structure, [self._leaf_value(leaf) for leaf in argument.leaves])
            for index, argument in enumerate(arguments)
        ]
        count = len(args.children)
        keywords = dict(zip(kwargs.context, values[count:], strict=True))
        return GraphCall(tuple(values[:count]), keywords, tuple(self._invented), sizes)

    def _require_known(self, args: Structure, kwargs: Structure) -> None:
        expected = f"the graph takes {', '.join(map(repr, self._graph.inputs)) or 'no tensors'}"
        if len(self._positional) > len(args.children):
            raise UsageError(
                f"{count_text(len(self._positional), 'positional input')} given, "
                f"the graph takes {len(args.children)}",
                fix=f"give the others by name (--input NAME=VALUE); {expected}",
            )
        for name in self._named:
            if name not in kwargs.context and name not in {value.name for value in self._graph.inputs}:
                raise UsageError(f"the graph has no input {name!r}", fix=expected)

    def _pair_arguments(self, args: Structure, kwargs: Structure) -> list[_Argument]:
        leaves = iter(self._graph.call[1])
        keywords = [self._named.pop(name, None) for name in kwargs.context]
        given = [*zip_longest(args.children, self._positional), *zip(kwargs.children, keywords, strict=True)]
        return [
            _Argument(structure, tuple(next(leaves) for _ in range(structure.num_leaves)), item)
            for structure, item in given
        ]

    def _realize_named_inputs(self, arguments: Sequence[_Argument]) -> None:
        """Realize the inputs that are given by their name in the graph, as parts of these arguments."""
        for leaf in dict.fromkeys(leaf for argument in arguments for leaf in argument.leaves):
            if isinstance(leaf, Value) and leaf.name in self._named:
                self._tensors[leaf] = realize_input(self._named.pop(leaf.name), self._fill)
        if self._named:
            raise UsageError(f"input {min(self._named)!r} is given twice: by position and by name")

    def _infer_symbols(self, given: Sequence[tuple[_Argument, Any]]) -> None:
        """Infer symbols from the given inputs, except inputs of wrong types, which the runner rejects."""
        pairs = list(self._tensors.items())
        for argument, item in given:
            leaves, structure = flatten(item)
            if structure == argument.structure:
                pairs += [
                    pair for pair in zip(argument.leaves, leaves, strict=True) if isinstance(pair[0], Value)
                ]
        pairs = [(value, item) for value, item in pairs if is_of_type(item, value.type)]
        self._symbols.solve((value.name, value.type, item) for value, item in pairs)

    def _leaf_value(self, leaf: Any) -> Any:
        if not isinstance(leaf, Value):
            return leaf
        if leaf not in self._tensors:
            if isinstance(leaf.type, TensorType) or leaf.type.kind == "float":
                self._invented.append(leaf)
            self._tensors[leaf] = make_input(leaf, self._symbols.values, self._fill)
        return self._tensors[leaf]
