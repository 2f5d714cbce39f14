"""Structures: the nesting of arguments and results, a pytree with values at its leaves.

torch.export flattens the arguments and results of a model. A ``Structure`` stores the nesting as plain
data, so it can be printed, stored and compared, and restores it without running code from a file: a type
that is not registered in this process is never imported.
"""

from __future__ import annotations

import collections
import functools
import operator
import reprlib
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from npu_ir._torch.pytree import PytreeNode, find_pytree_node, pytree_node, spec_parts, type_name
from npu_ir.core.literals import Literal, same_literal, to_literal
from npu_ir.errors import ExecutionError, GraphError

LEAF = "leaf"
_SEQUENCES: dict[str, type] = {"tuple": tuple, "list": list, "torch.Size": torch.Size}
_SEQUENCE_KINDS = {sequence: kind for kind, sequence in _SEQUENCES.items()}
# The supported default factories of a defaultdict: a name in a file is looked up here, never imported.
DEFAULTS: dict[str | None, Callable[[], Any] | None] = {
    None: None,
    **{factory.__name__: factory for factory in (dict, float, int, list, set, str, tuple)},
}
MAX_DEPTH = 100
_DICTS = ("dict", "collections.OrderedDict", "defaultdict")


@dataclass(frozen=True, slots=True)
class Structure:
    """One node of a pytree.

    Attributes:
        kind: ``leaf``, ``list``, ``tuple``, ``dict``, ``namedtuple``, or the full name of a type
            registered with ``torch.utils._pytree`` (``OrderedDict``, a Hugging Face output, ...).
        context: Further data of the container: dict keys, the name and fields of a namedtuple, or the
            registered type's own context, as literals.
        children: The structures of the elements, in order.
    """

    kind: str
    context: Literal = None
    children: tuple[Structure, ...] = ()

    # The context is compared as a literal: with ==, the dict keys 1, 1.0 and True would be equal.
    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Structure)
            and self.kind == other.kind
            and same_literal(self.context, other.context)
            and self.children == other.children
        )

    def __hash__(self) -> int:
        return hash((self.kind, len(self.children)))

    @property
    def num_leaves(self) -> int:
        return 1 if self.kind == LEAF else sum(child.num_leaves for child in self.children)

    def leaf_paths(self, prefix: str = "") -> Iterator[str]:
        """Yield the path of each leaf in Python's notation: ``[0]``, ``['mask']``, ``.logits``."""
        if self.kind == LEAF:
            yield prefix
            return
        for step, child in zip(self._path_segments(), self.children, strict=True):
            yield from child.leaf_paths(prefix + step)

    @property
    def _is_dataclass(self) -> bool:
        """True if the context has the form of `torch.export.register_dataclass`.

        That is a list of two lists: the fields that are children, and those that are None.
        """
        if self.kind in _DICTS or not isinstance(self.context, list) or len(self.context) != 2:
            return False
        return all(isinstance(part, list) for part in self.context) and len(self.context[0]) == len(
            self.children
        )

    def _path_segments(self) -> list[str]:
        if self.kind == "namedtuple":
            return [f".{field}" for field in self.context[1]]
        if self._is_dataclass:
            return [f".{field}" for field in self.context[0]]
        keys = self.context[1] if self.kind == "defaultdict" else self.context
        if isinstance(keys, list) and len(keys) == len(self.children):
            return [f"[{key!r}]" for key in dict_keys(keys)]
        return [f"[{index}]" for index in range(len(self.children))]


LEAF_STRUCTURE = Structure(LEAF)


def flatten(tree: object, depth: int = 0) -> tuple[list[Any], Structure]:
    """Return the leaves of ``tree`` and their structure.

    Raises:
        GraphError: A container has data that cannot be serialized (keys that are not literals, a
            registered type without a plain context), or nests deeper than 100.
    """
    if depth > MAX_DEPTH:
        raise GraphError(f"a structure nested deeper than {MAX_DEPTH} is not supported")
    opened = _unpack(tree)
    if opened is None:
        return [tree], LEAF_STRUCTURE
    kind, context, parts = opened
    leaves: list[Any] = []
    children = []
    for part in parts:
        below, child = flatten(part, depth + 1)
        leaves += below
        children.append(child)
    return leaves, Structure(kind, context, tuple(children))


def from_torch_spec(spec: Any) -> Structure:
    """Convert a ``TreeSpec`` of ``torch.utils._pytree`` to a structure.

    Raises:
        GraphError: As for ``flatten``.
    """
    container, context, parts = spec_parts(spec)
    if container is None:
        return LEAF_STRUCTURE
    children = tuple(map(from_torch_spec, parts))
    if container is collections.namedtuple:
        container = context
    return Structure(*_kind_and_context(container, context), children)


def _unpack(tree: object) -> tuple[str, Literal, list[Any]] | None:
    """Return the kind, context and elements of a container; None for a leaf."""
    container = tuple if isinstance(tree, torch.Size) else type(tree)
    if container in _SEQUENCE_KINDS:
        return *_kind_and_context(container, None), list(tree)  # type: ignore[call-overload]
    if isinstance(tree, dict) and container is dict:
        return *_kind_and_context(dict, list(tree)), list(tree.values())
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return *_kind_and_context(container, None), list(tree)
    node = pytree_node(container)
    if node is None:
        return None
    parts, context = node.flatten(tree)
    return *_kind_and_context(container, context), list(parts)


def _kind_and_context(container: Any, context: Any) -> tuple[str, Literal]:
    """Return the kind and the plain context of a container, from the context that torch has for it."""
    if container in _SEQUENCE_KINDS:
        return _SEQUENCE_KINDS[container], None
    if container is dict:
        return "dict", to_literal(list(context))
    if hasattr(container, "_fields"):
        return "namedtuple", [type_name(container), list(container._fields)]
    if container is collections.defaultdict:
        factory, keys = context
        return "defaultdict", [_factory_name(factory), to_literal(list(keys))]
    node = pytree_node(container)
    assert node is not None, f"{container} was flattened but is not registered"
    return type_name(container), _plain_context(node, context)


def _factory_name(wanted: object) -> str | None:
    for name, factory in DEFAULTS.items():
        if wanted is factory:
            return name
    raise GraphError(
        f"a defaultdict whose default is {wanted!r} cannot be written down",
        fix=f"use a dict, or a default among {', '.join(filter(None, DEFAULTS))}",
    )


def _plain_context(node: PytreeNode, context: object) -> Literal:
    try:
        return to_literal(context if node.dump is None else node.dump(context))
    except GraphError as error:
        raise GraphError(
            f"the pytree context of {type_name(node.type)} is not plain data: {context!r}",
            fix="register the type with to_dumpable_context= and from_dumpable_context=",
        ) from error


def unflatten(structure: Structure, leaves: Sequence[Any]) -> Any:
    """Return the tree of ``structure`` with these leaves.

    Raises:
        ExecutionError: The structure uses a type that is not registered in this process.
    """
    return _build(structure, iter(leaves))


def make_unflatten(structure: Structure) -> Callable[[Sequence[Any]], Any]:
    """Return `unflatten` for one structure and many calls; of a single leaf, at the cost of an index."""
    return operator.itemgetter(0) if structure.kind == LEAF else functools.partial(unflatten, structure)


def _build(structure: Structure, leaves: Iterator[Any]) -> Any:
    if structure.kind == LEAF:
        return next(leaves)
    parts = [_build(child, leaves) for child in structure.children]
    try:
        return _make_container(structure, parts)
    except (TypeError, ValueError, KeyError) as error:
        raise ExecutionError(
            f"{describe(structure)} cannot be built from {reprlib.repr(parts)}: {error}",
            where="the structure of the graph's arguments or results",
            fix="use flat results (Interpreter.run_flat)",
        ) from error


def _make_container(structure: Structure, parts: list[Any]) -> Any:
    if structure.kind in _SEQUENCES:
        return _SEQUENCES[structure.kind](parts)
    if structure.kind in ("dict", "collections.OrderedDict"):
        kind = dict if structure.kind == "dict" else collections.OrderedDict
        return kind(zip(dict_keys(structure.context), parts, strict=True))
    if structure.kind == "namedtuple":
        return _namedtuple_type(*structure.context)(*parts)
    if structure.kind == "defaultdict":
        factory, keys = structure.context
        return collections.defaultdict(DEFAULTS[factory], zip(dict_keys(keys), parts, strict=True))
    return _require_registered(structure.kind).unflatten(parts, structure.context)


def dict_keys(context: Literal) -> list[Any]:
    """Return the keys of a dict from its context, with lists restored to tuples."""
    # Literals store tuples as lists; a list is not hashable, so any list here was a tuple.
    return [tuple(dict_keys(key)) if isinstance(key, list) else key for key in context]


def _namedtuple_type(name: str, fields: list[str]) -> Callable[..., Any]:
    """Return the namedtuple class if its module is loaded, else a new one of the same name and fields."""
    cls = _find_loaded(name)
    if isinstance(cls, type) and issubclass(cls, tuple) and list(getattr(cls, "_fields", ())) == fields:
        return cls
    return collections.namedtuple(name.rpartition(".")[2], fields)


def _find_loaded(name: str) -> object:
    """Return the object named ``module.Class`` or ``module.Class.Inner``, or None; imports nothing."""
    # The longest prefix that is a loaded module; the rest is a path of attributes.
    module, _, path = name.rpartition(".")
    while module and module not in sys.modules:
        module, _, outer = module.rpartition(".")
        path = f"{outer}.{path}"
    obj: object = sys.modules.get(module)
    for step in path.split("."):
        # A lookup in __dict__, since a module's __getattr__ may run code or import.
        obj = getattr(obj, "__dict__", {}).get(step)
    return obj


def _require_registered(kind: str) -> PytreeNode:
    node = find_pytree_node(kind)
    if node is None:
        raise ExecutionError(
            f"the type {kind} is not registered as a pytree in this process",
            where="the structure of the graph's arguments or results",
            fix=f"import {kind.rpartition('.')[0]} first, or use flat results (Interpreter.run_flat)",
        )
    return node


def flatten_like(tree: object, structure: Structure, path: str) -> list[Any]:
    """Return the leaves of ``tree`` in the order of ``structure``.

    The keys of dicts are those of the structure where they are equal to them, as for torch's pytree: an enum
    of strings may stand for its string. Those of a plain dict may be in any order.

    Raises:
        ExecutionError: ``tree`` is not nested like ``structure``; names the path.
    """
    if structure.kind == LEAF:
        return [tree]
    wanted = "tuple" if structure.kind == "torch.Size" else structure.kind  # either may stand for the other
    keys = _dict_keys_of(structure)
    if isinstance(tree, dict) and _is_dict_of(structure, keys, tree):
        kind, context, parts = structure.kind, structure.context, [tree[key] for key in keys]
    else:
        try:
            kind, context, parts = _unpack(tree) or (LEAF, None, [])
        except GraphError as error:
            raise _misfit(error.message, path) from error
    if isinstance(tree, dict) and kind == "dict" == structure.kind and context is not structure.context:
        raise _misfit(f"expected keys {keys}, got {list(tree)}", path)
    if (
        kind != wanted
        or len(parts) != len(structure.children)
        or not same_literal(context, structure.context)
    ):
        actual = Structure(kind, context, (LEAF_STRUCTURE,) * len(parts))
        raise _misfit(f"expected {describe(structure)}, got {describe(actual)}", path)
    leaves: list[Any] = []
    for step, part, child in zip(structure._path_segments(), parts, structure.children, strict=True):
        leaves += flatten_like(part, child, path + step)
    return leaves


def _dict_keys_of(structure: Structure) -> list[Any]:
    if structure.kind not in _DICTS:
        return []
    return dict_keys(structure.context[1] if structure.kind == "defaultdict" else structure.context)


def _is_dict_of(structure: Structure, keys: list[Any], tree: dict[Any, Any]) -> bool:
    """Return whether a dict is one of a structure with these keys."""
    if type(tree) is not type_of_container(structure):
        return False
    if isinstance(tree, collections.defaultdict) and (
        tree.default_factory is not DEFAULTS[structure.context[0]]
    ):
        return False
    return set(tree) == set(keys) if structure.kind == "dict" else list(tree) == keys


def _misfit(message: str, path: str) -> ExecutionError:
    return ExecutionError(message, where=path, fix="pass what the model was captured with")


def type_of_container(structure: Structure) -> type | None:
    """Return the type of the containers of a structure; None if it is not loaded in this process."""
    if structure.kind in _SEQUENCES:
        return _SEQUENCES[structure.kind]
    if structure.kind == "dict":
        return dict
    if structure.kind == "namedtuple":
        cls = _namedtuple_type(*structure.context)
        return cls if isinstance(cls, type) and type_name(cls) == structure.context[0] else None
    if structure.kind == "defaultdict":
        return collections.defaultdict
    node = find_pytree_node(structure.kind)
    return None if node is None else node.type


@dataclass(frozen=True, slots=True)
class Opener:
    """The functions that take instances of one registered container apart."""

    # Returns the elements of an instance, and its context in torch's form.
    flatten: Callable[[Any], tuple[Sequence[Any], Any]]
    has_context: Callable[[Any], bool]  # whether such a context is that of the structure


def make_opener(structure: Structure) -> Opener:
    """Return the functions that take containers of a structure apart, whose type is registered."""
    container, wanted = type_of_container(structure), structure.context
    node = pytree_node(container) if container else None
    assert node is not None
    if node.dump is None and _holds_strings(wanted):  # keys, names of fields: compared in C
        return Opener(node.flatten, functools.partial(operator.eq, wanted))
    return Opener(
        node.flatten, lambda context: same_literal(_kind_and_context(container, context)[1], wanted)
    )


def _holds_strings(context: Literal) -> bool:
    return all(map(_holds_strings, context)) if isinstance(context, list) else type(context) is str


def describe(structure: Structure) -> str:
    """Describe one node of a structure in words: ``a tuple of 2``, ``a dict with keys ['a']``."""
    if structure.kind == LEAF:
        return "one value"
    if structure.kind in ("dict", "collections.OrderedDict"):
        return f"a {structure.kind} with keys {dict_keys(structure.context)}"
    if structure.kind == "defaultdict":
        return f"a defaultdict of {structure.context[0]} with keys {dict_keys(structure.context[1])}"
    if structure.kind == "namedtuple":
        return f"a {structure.context[0]} with fields {structure.context[1]}"
    return f"a {structure.kind} of {len(structure.children)}"
