"""Alias analysis: values that may share memory, and those whose memory is visible to callers.

Where a model returns separate tensors, a rewrite must not let two results share memory, or a result and an
input: a caller that writes into one would change the other.
"""

from __future__ import annotations

import enum

import torch

from npu_ir import Graph, OpNode, TensorType, Value
from npu_ir.ops.effects import is_random, is_view
from npu_ir.ops.schema import SCALAR_FUNCTIONS, find_op
from npu_passes.core.base import Pass

_GETITEM = "<built-in function getitem>"

# Return their input itself, though their schemas do not declare it; the dropouts do so where they are off.
_UNDECLARED_ALIASES = frozenset({"aten.lift.default", "aten._unsafe_view.default"})
_DROPOUTS = frozenset(
    f"aten.{name}.default"
    for name in ("dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout")
)
# May return one of their inputs, or a view of it, though their schemas do not declare it.
_MAYBE_ALIASES = frozenset(
    f"aten.{name}"
    for name in (
        "atleast_1d.default",
        "atleast_1d.Sequence",
        "atleast_2d.default",
        "atleast_2d.Sequence",
        "atleast_3d.default",
        "atleast_3d.Sequence",
        "broadcast_tensors.default",
        "einsum.default",
        "meshgrid.default",
        "meshgrid.indexing",
        "sum_to_size.default",
        "to_dense.default",
        "type_as.default",
        "cartesian_prod.default",
        "flatten_dense_tensors.default",
    )
)
# Return a view where the strides allow it, and a copy otherwise.
_COPY_IF_NEEDED = frozenset({"reshape", "reshape_as", "flatten", "contiguous", "to"})
_CONVERTING = ("aten.to.", "aten.contiguous.")


class _AliasKind(enum.Enum):
    """Inputs whose memory the outputs of an op may share."""

    COPY = enum.auto()  # none
    VIEW = enum.auto()  # the first input
    DROPOUT = enum.auto()  # the first input, where dropout is off
    PART = enum.auto()  # the input that the index selects
    ANY = enum.auto()  # any tensor among the inputs


class AliasAnalysis:
    """Incremental alias analysis of one graph, made before it is edited: nodes are added in order.

    May-alias is forward: each value maps to the one value whose memory it may share, or None if there are
    several candidates. Must-alias is its subset of ops that never copy. Visibility is backward, from results.
    """

    def __init__(self, graph: Graph) -> None:
        self._kinds: dict[str, _AliasKind] = {}
        self._visible: set[Value] = set(graph.returned_values)
        self._roots: dict[Value, Value | None] = {}
        self._certain_roots: dict[Value, Value] = {}
        # Reversed topological order: one sweep reaches all that results may alias.
        for node in reversed(graph.nodes):
            if not self._visible.isdisjoint(node.outputs):
                self._visible.update(self._alias_sources_of(node))

    def add_node(self, node: OpNode) -> None:
        """Add a node that stays in the graph."""
        sources = self._alias_sources_of(node)
        if not sources:
            return
        memory = self._alias_root(sources[0]) if len(sources) == 1 else None
        for value in node.outputs:
            self._roots[value] = memory
        if self._is_certain_alias(node):
            for value in node.outputs:
                self._certain_roots[value] = self._certain_roots.get(sources[0], sources[0])

    def find_obstacle(self, old: Value, new: Value) -> str | None:
        """Return why ``new`` cannot replace ``old``, which has equal contents; None if it can."""
        if old not in self._visible or self._must_alias(old, new):
            return None
        memory = self._alias_root(new)
        # Unknown, or from outside the call: an argument, or a prologue result, computed once for all calls.
        if memory is None or memory.producer is None or memory.producer.in_prologue:
            source = new if memory is None else memory
            return f"it is a result of the graph, and would share the memory of %{source.name}"
        if memory in self._visible:
            return f"it is a result of the graph, and would share the memory of another, %{memory.name}"
        return None

    def replace_output(self, item: Pass, node: OpNode, old: Value, new: Value, rule: str) -> None:
        """Replace an output of ``node`` by a value with equal contents; refuse if callers would see it."""
        obstacle = self.find_obstacle(old, new)
        if obstacle is not None:
            item.refuse(node, obstacle, rule)
            return
        assert node.graph is not None
        with item.rewrite(node.graph, rule, node) as edit:
            edit.replace(old, new)
            self.record_replacement(old, new)

    def record_replacement(self, old: Value, new: Value) -> None:
        """Record that ``new`` has replaced ``old``."""
        if old in self._visible:
            memory = self._alias_root(new)
            self._visible.update((new,) if memory is None else (new, memory))

    def _must_alias(self, old: Value, new: Value) -> bool:
        """Return whether both values must alias one tensor in the model, too."""
        node = old.producer
        origin = self._certain_roots.get(old, old)
        if node is not None and origin is old and self._is_certain_alias(node):  # its node has not been added
            source = self._alias_sources_of(node)[0]
            origin = self._certain_roots.get(source, source)
        return origin is self._certain_roots.get(new, new)

    def _alias_root(self, value: Value) -> Value | None:
        """Return the value whose memory this one may share; None if there are several candidates."""
        return self._roots.get(value, value)

    def _alias_sources_of(self, node: OpNode) -> tuple[Value, ...]:
        kind = self._alias_kind(node)
        return () if kind is _AliasKind.COPY else _alias_sources(node, kind)

    def _is_certain_alias(self, node: OpNode) -> bool:
        """Return whether the outputs must alias the first input."""
        kind = self._alias_kind(node)
        if kind is _AliasKind.DROPOUT or kind is _AliasKind.PART:
            return len(self._alias_sources_of(node)) == 1
        if kind is not _AliasKind.VIEW:
            return False
        if node.op_type in _UNDECLARED_ALIASES or node.op_type.split(".")[1] not in _COPY_IF_NEEDED:
            return True
        if node.op_type.startswith(_CONVERTING):
            return not _is_copying_conversion(node)
        source, result = node.inputs[0].type, node.outputs[0].type
        return source == result or (isinstance(source, TensorType) and _is_contiguous(source))

    def _alias_kind(self, node: OpNode) -> _AliasKind:
        kind = self._kinds.get(node.op_type)
        if kind is None:
            kind = self._kinds[node.op_type] = _alias_kind_of(node)
        return kind


def is_visible_outside(value: Value) -> bool:
    """Return whether a result or an update of the graph may share the memory of ``value``."""
    pending, passed = [value], set()
    while pending:
        item = pending.pop()
        if item.is_output:
            return True
        for user in item.users:
            if user not in passed and item in _alias_sources(user, _alias_kind_of(user)):
                passed.add(user)
                pending += user.outputs
    return False


def _alias_sources(node: OpNode, kind: _AliasKind) -> tuple[Value, ...]:
    """Return the inputs whose memory the outputs of a node may share."""
    if kind is _AliasKind.COPY or not node.inputs:
        return ()
    if kind is _AliasKind.PART:
        part = selected_input(node)
        return node.inputs if part is None else (part,)
    if kind is _AliasKind.DROPOUT:
        return () if is_random(node) else node.inputs[:1]
    if kind is _AliasKind.VIEW:
        return () if _is_copying_conversion(node) else node.inputs[:1]
    return tuple(value for value in node.inputs if isinstance(value.type, TensorType))


def selected_input(node: OpNode) -> Value | None:
    """Return the input that ``getitem`` returns; None for any other op, or if its index is out of range."""
    index = node.attrs.get("index")
    if (
        node.op_type != _GETITEM
        or type(index) is not int
        or not -len(node.inputs) <= index < len(node.inputs)
    ):
        return None
    return node.inputs[index]


def _alias_kind_of(node: OpNode) -> _AliasKind:
    op_type = node.op_type
    if op_type == _GETITEM:
        return _AliasKind.PART
    if op_type in _DROPOUTS:
        return _AliasKind.DROPOUT
    if op_type in _UNDECLARED_ALIASES or is_view(node):
        return _AliasKind.VIEW
    is_unknown = op_type not in SCALAR_FUNCTIONS and find_op(op_type) is None
    return _AliasKind.ANY if node.regions or op_type in _MAYBE_ALIASES or is_unknown else _AliasKind.COPY


def _is_copying_conversion(node: OpNode) -> bool:
    """Return whether a conversion copies: it changes the type, strides included, or has ``copy=True``."""
    if not node.op_type.startswith(_CONVERTING):
        return False
    return node.inputs[0].type != node.outputs[0].type or bool(node.attrs.get("copy", False))


def _is_contiguous(type: TensorType) -> bool:
    return type.strides is None and type.layout is torch.strided


def find_visible_values(graph: Graph) -> set[Value]:
    """Return a superset of the values that may share memory with a result of the graph.

    Each call returns new memory, which callers may write into; that of a constant must not be returned. Some
    ops return their input, though their schemas do not declare it; these have a single input.
    """
    visible = set(graph.returned_values)
    for node in reversed(graph.nodes):
        if not visible.isdisjoint(node.outputs) and may_return_input(node):
            visible.update(node.inputs)
    return visible


def may_return_input(node: OpNode) -> bool:
    """Return whether an output may share memory with an input, approximated as by `find_visible_values`."""
    return len(node.inputs) == 1 or is_view(node)


def shared_input(node: OpNode) -> Value | None:
    """Return the input in whose memory the outputs of ``node`` reside, as far as its types tell.

    None if they have memory of their own. Where an op copies only if it has to, as ``reshape`` does, an
    output without gaps of an input with some is taken for a copy.
    """
    kind = _alias_kind_of(node)
    sources = _alias_sources(node, kind)
    if kind is _AliasKind.ANY or len(sources) != 1:
        return None
    if node.op_type in _UNDECLARED_ALIASES or node.op_type.split(".")[1] not in _COPY_IF_NEEDED:
        return sources[0]
    source, result = sources[0].type, node.outputs[0].type
    if not isinstance(source, TensorType) or not isinstance(result, TensorType):
        return None
    return sources[0] if _is_contiguous(source) or not _is_contiguous(result) else None
