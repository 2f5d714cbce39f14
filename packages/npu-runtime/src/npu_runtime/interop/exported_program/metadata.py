"""Metadata of an exported program: the FakeTensor or symbolic number of each value."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from npu_ir import ConversionError, Expr, Graph, ScalarType, Structure, TensorType, Value
from npu_ir.core.structure import LEAF, dict_keys
from npu_ir.core.types import Type, contiguous_strides
from npu_ir.errors import UsageError
from npu_ir.interpreter.size_choice import choose_sizes
from npu_ir.ops.torch_sizes import to_symbolic
from npu_ir.symbolic.constraints import RELATIONS
from npu_ir.symbolic.expressions import Dim
from npu_runtime._torch.export import ExportContext


def identifier(name: str) -> str:
    """Return the name of a value or node as an identifier: other characters become underscores."""
    plain = re.sub(r"\W", "_", name)
    return f"_{plain}" if not plain or plain[0].isdigit() else plain


def unused_attribute(module: torch.nn.Module, name: str) -> str:
    """Return an unused attribute name of a module: ``name``, or else ``name_1``, ``name_2``, ..."""
    candidate, count = name, 0
    while hasattr(module, candidate):
        count += 1
        candidate = f"{name}_{count}"
    return candidate


def parameter_names(graph: Graph) -> list[str]:
    """Return the parameter names of a call: that of the input, if an argument is a single input."""
    structure, leaves = graph.call
    positional, keyword = structure.children
    names = list(map(str, keyword.context))
    wanted: list[str] = []
    position = 0
    for index, child in enumerate(positional.children):
        leaf = leaves[position] if child.num_leaves == 1 else None
        position += child.num_leaves
        name = identifier(leaf.name) if isinstance(leaf, Value) else f"arg_{index}"
        wanted.append(f"arg_{index}" if name in (*wanted, *names) else name)
    return [*wanted, *names]


def argument_paths(graph: Graph) -> list[tuple[str | int, ...]]:
    """Return the path of each flat argument: the parameter, then keys and indices."""
    positional, keyword = graph.call[0].children
    named = zip(parameter_names(graph), (*positional.children, *keyword.children), strict=True)
    return [place for name, child in named for place in _leaf_paths(child, (name,))]


def _leaf_paths(structure: Structure, prefix: tuple[str | int, ...]) -> Iterator[tuple[str | int, ...]]:
    if structure.kind == LEAF:
        yield prefix
        return
    keys = dict_keys(structure.context) if structure.kind == "dict" else range(len(structure.children))
    for key, child in zip(keys, structure.children, strict=True):
        yield from _leaf_paths(child, (*prefix, key))


_PACKED = ("torch._mkldnn",)


class Metadata:
    """The metadata of one exported program.

    Args:
        graph: The graph to convert.
        device: The device of its tensors.

    Attributes:
        context: The FakeTensorMode and ShapeEnv.
        examples: A valid value for each symbol in the sizes of inputs.
    """

    def __init__(self, graph: Graph, device: torch.device) -> None:
        self.context = ExportContext()
        self.examples = _examples(graph)
        self._ranges = graph.symbols
        self._device = device
        self._where = f"graph {graph.name!r}"
        self._sizes: dict[str, Any] = {
            name: self.context.create_size(
                name, graph.symbols[name].low, graph.symbols[name].high, example, place
            )
            for name, example in self.examples.items()
            for place in [_find_argument(graph, name)]
        }
        for constraint in graph.constraints:
            sides = (to_symbolic(side, self._sizes) for side in (constraint.left, constraint.right))
            bool(RELATIONS[constraint.relation](*sides))  # the evaluation adds a guard to the ShapeEnv

    def is_known(self, type: Type) -> bool:
        """Return whether a type determines the fake value: its sizes depend on those of inputs alone."""
        if isinstance(type, ScalarType) and type.value is None:
            return type.kind == "none"
        return type.symbols <= self._sizes.keys()

    def fake_value(self, type: Type) -> Any:
        """Return the FakeTensor or number of a type for which `is_known` holds.

        Raises:
            ConversionError: It is the type of a weight packed for oneDNN, for which FakeTensors do not exist.
        """
        if isinstance(type, ScalarType):
            return None if type.value is None else to_symbolic(type.value, self._sizes)
        with self.context.fake_mode():
            shape = self._dims(type.shape)
            if str(type.layout) in _PACKED:
                raise ConversionError(
                    f"a program of PyTorch's holds no packed weights, such as {type}",
                    where=self._where,
                    fix="leave out the passes that pack weights, those of the pipeline 'cpu':"
                    " they are for the executor",
                )
            if type.layout is not torch.strided:
                return torch.empty(shape, dtype=type.dtype, layout=type.layout, device=self._device)
            strides = self._dims(contiguous_strides(type.shape) if type.strides is None else type.strides)
            return torch.empty_strided(shape, strides, dtype=type.dtype, device=self._device)

    def record_sizes(self, outputs: Sequence[Value], results: Sequence[Any]) -> None:
        """Record the sizes of symbols that occur first in the types of these results."""
        for value, result in zip(outputs, results, strict=True):
            for wanted, size in _sizes(value.type, result):
                name = wanted.symbol if isinstance(wanted, Expr) else None
                if name is not None and name not in self._sizes:
                    self._sizes[name] = size
                    if isinstance(size, torch.SymInt):
                        self.context.set_range(size, self._ranges[name].low, self._ranges[name].high)

    def example(self, type: Type) -> Any:
        """Return an example argument of a type: a tensor of zeros, or a number."""
        type = type.substitute(self.examples)
        if isinstance(type, TensorType):
            return torch.empty_strided(
                type.static_shape, type.static_strides, dtype=type.dtype, device=self._device
            ).zero_()
        return {"int": type.value or 0, "float": 0.0, "bool": False, "none": None}[type.kind]

    def _dims(self, dims: Sequence[Dim]) -> list[Any]:
        return [to_symbolic(dim, self._sizes) for dim in dims]


def _examples(graph: Graph) -> dict[str, int]:
    try:
        return choose_sizes(graph, {}, {})
    except UsageError as error:
        raise ConversionError(
            f"a program needs an example of its sizes, and {error.message}",
            where=f"graph {graph.name!r}",
            fix="fix some of the sizes first: graph.specialize({...})",
        ) from error


def _find_argument(graph: Graph, name: str) -> tuple[tuple[str | int, ...], int | None] | None:
    """Return the path to an argument, and its dimension, whose size is exactly this symbol."""
    for place, leaf in zip(argument_paths(graph), graph.call[1], strict=True):
        if isinstance(leaf, Value):
            for axis, (wanted, _) in enumerate(_sizes(leaf.type, None)):
                if isinstance(wanted, Expr) and wanted.symbol == name:
                    return place, axis if isinstance(leaf.type, TensorType) else None
    return None


def _sizes(type: Type, item: Any) -> Sequence[tuple[Dim | None, Any]]:
    """Return the sizes of a type, each paired with that of ``item``, or with None."""
    if isinstance(type, ScalarType):
        return [(type.value, item)]
    return list(zip(type.shape, (None,) * type.rank if item is None else item.shape, strict=True))
