"""Uses of private names of PyTorch in source code."""

import ast
import importlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

import torch


def private_torch_names(tree: ast.AST) -> Iterator[str]:
    """Yield every dotted torch name that has a private part, as often as it stands there."""
    aliases = dict(_aliases(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if is_private_torch(alias.name))
        elif isinstance(node, ast.ImportFrom):
            names = (f"{node.module}.{alias.name}" for alias in node.names)
            yield from (name for name in names if is_private_torch(name))
        elif isinstance(node, ast.Attribute) and is_private_torch(name := _dotted(node, aliases)):
            yield name


def _aliases(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield the names that a file has for parts of PyTorch, each with the full one."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "torch":
            yield from ((alias.asname or alias.name, f"{node.module}.{alias.name}") for alias in node.names)


def _dotted(node: ast.expr, aliases: Mapping[str, str]) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value, aliases)}.{node.attr}"
    return aliases.get(node.id, node.id) if isinstance(node, ast.Name) else ""


def is_private_torch(name: str) -> bool:
    root, *parts = name.split(".")
    if root != "torch" or parts[:1] == ["ops"]:  # the names of ops are their schemas', "_" or not
        return False
    return parts[:2] == ["fx", "experimental"] or any(re.match("_(?!_)", part) for part in parts)


def has_torch_name(name: str) -> bool:
    """Return whether this PyTorch has a dotted name: a module, or what is in one."""
    item: Any = torch
    path = "torch"
    for part in name.split(".")[1:]:
        path = f"{path}.{part}"
        try:  # a package may hide the name of a module in it, as torch.optim does in 2.14
            item = getattr(item, part) if hasattr(item, part) else importlib.import_module(path)
        except ImportError:
            return False
    return True
