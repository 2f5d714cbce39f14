"""Which values share memory, and which of it is seen outside of a graph.

A rewrite must not make two results one tensor, or a result an input, where the model returns tensors of their own:
whoever writes into one would change the other.
"""

from __future__ import annotations

import enum

import torch

from npu_ir import Graph, OpNode, TensorType, Value
from npu_ir.ops.effects import is_random, is_view
from npu_ir.ops.scalar_functions import SCALAR_FUNCTIONS
from npu_ir.ops.schema import find_op

_GETITEM = "<built-in function getitem>"

# Return the very tensor that they get, though their schemas do not say so; the dropouts where they are off.
_UNDECLARED = frozenset({"aten.lift.default", "aten._unsafe_view.default"})
_DROPOUTS = frozenset(
    f"aten.{name}.default"
    for name in ("dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout")
)
# May return one of the tensors that they get, or a view of it, though their schemas do not say so.
_LOOSE = frozenset(
    f"aten.{name}"
    for name in (
        *("atleast_1d.default", "atleast_1d.Sequence", "atleast_2d.default", "atleast_2d.Sequence"),
        *("atleast_3d.default", "atleast_3d.Sequence", "broadcast_tensors.default", "einsum.default"),
        *("meshgrid.default", "meshgrid.indexing", "sum_to_size.default", "to_dense.default"),
        *("type_as.default", "cartesian_prod.default", "flatten_dense_tensors.default"),
    )
)
# Return a view where the strides allow it, and a copy elsewhere.
_COPY_IF_NEEDED = frozenset({"reshape", "reshape_as", "flatten", "contiguous", "to"})
_CONVERTING = ("aten.to.", "aten.contiguous.")


class _Kind(enum.Enum):
    """Whose memory the outputs of an op may share."""

    COPY = enum.auto()  # of no input
    VIEW = enum.auto()  # of the first input
    DROPOUT = enum.auto()  # of the first input, where it is off
    PART = enum.auto()  # of one of them, the index says which
    ANY = enum.auto()  # of any tensor among them


class Sharing:
    """What shares memory in one graph; told of each node in the order of the graph, as far as it is looked at.

    Args:
        graph: The graph, before it is edited.
    """

    def __init__(self, graph: Graph) -> None:
        self._kinds: dict[str, _Kind] = {}
        self._seen: set[Value] = {*graph.outputs, *graph.updates.values()}
        self._memory: dict[Value, Value | None] = {}
        self._certain: dict[Value, Value] = {}
        for node in reversed(graph.nodes):
            sources = self._sources(node)
            if sources and not self._seen.isdisjoint(node.outputs):
                self._seen.update(sources)

    def pass_by(self, node: OpNode) -> None:
        """Take note of a node that stays."""
        sources = self._sources(node)
        if not sources:
            return
        memory = self._memory_of(sources[0]) if len(sources) == 1 else None
        for value in node.outputs:
            self._memory[value] = memory
        if self._is_certain(node):
            for value in node.outputs:
                self._certain[value] = self._certain.get(sources[0], sources[0])

    def obstacle(self, old: Value, new: Value) -> str | None:
        """Return why ``new`` cannot take the place of ``old``, which has the same content; None if it can."""
        if old not in self._seen or self._is_same_memory(old, new):
            return None
        memory = self._memory_of(new)
        if memory is None or memory.producer is None or memory.producer.in_prologue:
            source = new if memory is None else memory
            return f"it is a result of the graph, and would share the memory of %{source.name}"
        if memory in self._seen:
            return f"it is a result of the graph, and would share the memory of another, %{memory.name}"
        return None

    def replaced(self, old: Value, new: Value) -> None:
        """Take note that ``new`` has taken the place of ``old``."""
        if old in self._seen:
            memory = self._memory_of(new)
            self._seen.update((new,) if memory is None else (new, memory))

    def _is_same_memory(self, old: Value, new: Value) -> bool:
        """Whether both are views of one tensor in the model, too."""
        node = old.producer
        origin = self._certain.get(old, old)
        if node is not None and origin is old and self._is_certain(node):
            source = self._sources(node)[0]
            origin = self._certain.get(source, source)
        return origin is self._certain.get(new, new)

    def _memory_of(self, value: Value) -> Value | None:
        """Return the value whose memory this one may share; None if that is not known."""
        return self._memory.get(value, value)

    def _sources(self, node: OpNode) -> tuple[Value, ...]:
        return _sources(node, self._kind(node))

    def _is_certain(self, node: OpNode) -> bool:
        """Whether the outputs share the memory of the first input in any case."""
        if self._kind(node) in (_Kind.DROPOUT, _Kind.PART):
            return len(self._sources(node)) == 1
        if self._kind(node) is not _Kind.VIEW:
            return False
        if node.op_type in _UNDECLARED or node.op_type.split(".")[1] not in _COPY_IF_NEEDED:
            return True
        if node.op_type.startswith(_CONVERTING):
            return not _copies(node)
        given, made = node.inputs[0].type, node.outputs[0].type
        return given == made or (isinstance(given, TensorType) and _is_contiguous(given))

    def _kind(self, node: OpNode) -> _Kind:
        kind = self._kinds.get(node.op_type)
        if kind is None:
            kind = self._kinds[node.op_type] = _kind(node)
        return kind


def is_seen(value: Value) -> bool:
    """Return whether a result or an update of the graph may share the memory of ``value``."""
    pending, passed = [value], set()
    while pending:
        item = pending.pop()
        if item.is_output:
            return True
        for user in item.users:
            if user not in passed and item in _sources(user, _kind(user)):
                passed.add(user)
                pending += user.outputs
    return False


def _sources(node: OpNode, kind: _Kind) -> tuple[Value, ...]:
    """Return the inputs whose memory the outputs may share."""
    if kind is _Kind.COPY or not node.inputs:
        return ()
    if kind is _Kind.PART:
        part = part_of_tuple(node)
        return node.inputs if part is None else (part,)
    if kind is _Kind.DROPOUT:
        return () if is_random(node) else node.inputs[:1]
    if kind is _Kind.VIEW:
        return () if _copies(node) else node.inputs[:1]
    return tuple(value for value in node.inputs if isinstance(value.type, TensorType))


def part_of_tuple(node: OpNode) -> Value | None:
    """Return the input that ``getitem`` returns; None for any other op, and where there is no such input."""
    index = node.attrs.get("index")
    if (
        node.op_type != _GETITEM
        or type(index) is not int
        or not -len(node.inputs) <= index < len(node.inputs)
    ):
        return None
    return node.inputs[index]


def _kind(node: OpNode) -> _Kind:
    op_type = node.op_type
    if op_type == _GETITEM:
        return _Kind.PART
    if op_type in _DROPOUTS:
        return _Kind.DROPOUT
    if op_type in _UNDECLARED or is_view(node):
        return _Kind.VIEW
    is_unknown = op_type not in SCALAR_FUNCTIONS and find_op(op_type) is None
    return _Kind.ANY if node.regions or op_type in _LOOSE or is_unknown else _Kind.COPY


def _copies(node: OpNode) -> bool:
    """Whether an op that returns a view where it can has to copy: it changes the dtype, or the strides of a shape."""
    if not node.op_type.startswith(_CONVERTING):
        return False
    return node.inputs[0].type != node.outputs[0].type or bool(node.attrs.get("copy", False))


def _is_contiguous(type: TensorType) -> bool:
    return type.strides is None and type.layout is torch.strided


def returned(graph: Graph) -> set[Value]:
    """Return the values that share memory with a result of the graph, as far as can be told, and more.

    A graph returns new memory at each call, and callers may write to it: not to that of a constant. Some ops return
    what they were given, though their schema does not say so; these have a single input.
    """
    found = {leaf for leaf in graph.results[1] if isinstance(leaf, Value)} | set(graph.updates.values())
    for node in reversed(graph.nodes):
        if not found.isdisjoint(node.outputs) and may_return_input(node):
            found.update(node.inputs)
    return found


def may_return_input(node: OpNode) -> bool:
    """Return whether an output may share memory with an input, as far as `returned` goes."""
    return len(node.inputs) == 1 or is_view(node)
