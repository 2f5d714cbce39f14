"""Pytrees: registered container types, specifications, leaves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True, slots=True)
class PytreeNode:
    """The functions of a registered container type that flatten and unflatten it."""

    type: type
    flatten: Callable[[Any], tuple[list[Any], Any]]  # returns the elements of an instance and its context
    unflatten: Callable[[list[Any], Any], Any]  # the inverse, of the dumped context
    # Returns a context as plain data; None if contexts are plain data already.
    dump: Callable[[Any], Any] | None


def type_name(container: type) -> str:
    """Return the full name of a type, as structures store it."""
    return f"{container.__module__}.{container.__qualname__}"


def pytree_node(container: type) -> PytreeNode | None:
    """Return the registration of ``container`` with torch's pytrees, or None if it is a leaf."""
    from torch.utils import _pytree

    node = _pytree.SUPPORTED_NODES.get(container)
    if node is None:
        return None
    serialized = _pytree.SUPPORTED_SERIALIZED_TYPES.get(container)
    dump = serialized.to_dumpable_context if serialized else None
    load = serialized.from_dumpable_context if serialized else None

    def unflatten(parts: list[Any], context: Any) -> Any:
        return node.unflatten_fn(parts, context if load is None else load(context))

    return PytreeNode(container, node.flatten_fn, unflatten, dump)


def find_pytree_node(name: str) -> PytreeNode | None:
    """Return the registered container type whose full name is ``name``."""
    from torch.utils import _pytree

    for container in _pytree.SUPPORTED_NODES:
        if type_name(container) == name:
            return pytree_node(container)
    return None


def spec_parts(spec: Any) -> tuple[Any, Any, list[Any]]:
    """Return type (None at a leaf), context and children of a torch ``TreeSpec``."""
    # The children are a method or an attribute, depending on the release.
    return (
        spec.type,
        spec.context,
        list(spec.children() if hasattr(spec, "children") else spec.children_specs),
    )


def is_tree_spec(value: Any) -> bool:
    """Return whether ``value`` is a torch ``TreeSpec``."""
    from torch.utils import _pytree

    return isinstance(value, _pytree.TreeSpec)


def tree_leaves(tree: Any) -> list[Any]:
    """Return the leaves of a pytree."""
    from torch.utils import _pytree

    return list(_pytree.tree_leaves(tree))


def tensor_leaves(tree: Any) -> list[torch.Tensor]:
    """Return the tensors among the leaves of a pytree."""
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def tree_map(function: Callable[[Any], Any], tree: Any) -> Any:
    """Return a pytree with ``function`` applied to every leaf."""
    from torch.utils import _pytree

    return _pytree.tree_map(function, tree)


def map_tensors(function: Callable[[torch.Tensor], Any], tree: Any) -> Any:
    """Return a pytree with ``function`` applied to every leaf that is a tensor."""
    return tree_map(lambda leaf: function(leaf) if isinstance(leaf, torch.Tensor) else leaf, tree)


def flatten_tree(tree: Any) -> tuple[list[Any], Callable[[list[Any]], Any]]:
    """Return the leaves of a pytree, and the function that puts others in their places."""
    from torch.utils import _pytree

    leaves, spec = _pytree.tree_flatten(tree)
    return leaves, lambda others: _pytree.tree_unflatten(others, spec)
