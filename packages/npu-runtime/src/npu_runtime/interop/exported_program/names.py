"""Names of a graph as those of a program of PyTorch's, which are identifiers."""

from __future__ import annotations

import re
from collections.abc import Iterator

import torch

from npu_ir import Graph, Structure, Value
from npu_ir.core.structure import LEAF, dict_keys


def identifier(name: str) -> str:
    """Return the name of a value or node with all that no identifier can have replaced."""
    plain = re.sub(r"\W", "_", name)
    return f"_{plain}" if not plain or plain[0].isdigit() else plain


def free_attribute(module: torch.nn.Module, name: str) -> str:
    """Return ``name``, or the first of ``name_1``, ``name_2``, ... that ``module`` has no attribute of."""
    found, count = name, 0
    while hasattr(module, found):
        count += 1
        found = f"{name}_{count}"
    return found


def parameter_names(graph: Graph) -> list[str]:
    """Return the names of what a call takes: those of the inputs, where these stand for a whole argument."""
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


def argument_places(graph: Graph) -> list[tuple[str | int, ...]]:
    """Return for each flat argument where it is found: the parameter, then keys and indices."""
    positional, keyword = graph.call[0].children
    named = zip(parameter_names(graph), (*positional.children, *keyword.children), strict=True)
    return [place for name, child in named for place in _places(child, (name,))]


def _places(structure: Structure, prefix: tuple[str | int, ...]) -> Iterator[tuple[str | int, ...]]:
    if structure.kind == LEAF:
        yield prefix
        return
    keys = dict_keys(structure.context) if structure.kind == "dict" else range(len(structure.children))
    for key, child in zip(keys, structure.children, strict=True):
        yield from _places(child, (*prefix, key))
