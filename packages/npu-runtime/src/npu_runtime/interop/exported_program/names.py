"""Names for an exported program, which must be Python identifiers."""

from __future__ import annotations

import re
from collections.abc import Iterator

import torch

from npu_ir import Graph, Structure, Value
from npu_ir.core.structure import LEAF, dict_keys


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
