"""State that is written in place: which nodes of a graph write into the memory of a buffer, or of an input.

A functional graph makes the next content of a cache by ``index_copy`` and the like: a copy of all of it, in
which few rows differ. Where nothing reads the old content any more, the node writes these rows into the
memory of the state itself, or of an input that the caller donates. What it overwrites is kept until the call
has succeeded: a call that fails leaves the state as it was, at the cost of the rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch

from npu_ir import Graph, OpNode, TensorType, Value
from npu_ir.core.storage import has_overlapping_elements
from npu_ir.ops.effects import is_view, overwrites_part


@dataclass(frozen=True, slots=True)
class StateUpdates:
    """The ways in which the state of a graph gets its next content.

    Attributes:
        in_place: For each output that is written into the memory of its node's first input, that input:
            an argument, or the output of another such node.
        copied: Why other arguments that are only overwritten in part are copied in each call.
    """

    in_place: Mapping[Value, Value] = field(default_factory=dict)
    copied: Mapping[Value, str] = field(default_factory=dict)

    def source_of(self, value: Value) -> Value:
        """Return the argument in whose memory an output is."""
        while value in self.in_place:
            value = self.in_place[value]
        return value


def find_state_updates(graph: Graph, overwritable: Mapping[Value, Value | None]) -> StateUpdates:
    """Return which nodes of a graph can write into the memory of its arguments.

    Args:
        graph: The graph.
        overwritable: The arguments whose memory may be written to, and for each the value that is to be in it
            after a call; None where nobody reads it then.
    """
    in_place: dict[Value, Value] = {}
    copied: dict[Value, str] = {}
    for target, content in overwritable.items():
        chain = _chain_from(target) if content is None else _chain_to(target, content)
        if not chain:
            continue
        reason = _why_copied(graph, target, chain)
        if reason is None:
            in_place.update((node.outputs[0], node.inputs[0]) for node in chain)
        else:
            copied[target] = reason
    return StateUpdates(in_place, copied)


def _chain_to(target: Value, content: Value) -> list[OpNode]:
    """Return the nodes that overwrite parts of a target one after the other, until it has this content."""
    chain: list[OpNode] = []
    while content is not target:
        node = content.producer
        if node is None or node.in_prologue or not overwrites_part(node):
            return []
        chain.append(node)
        content = node.inputs[0]
    return chain


def _chain_from(target: Value) -> list[OpNode]:
    """Return the nodes that overwrite parts of a target one after the other, as far as there is one way."""
    chain: list[OpNode] = []
    writers = _writers_to(target)
    while len(writers) == 1:
        chain += writers
        writers = _writers_to(writers[0].outputs[0])
    return chain


def _writers_to(value: Value) -> list[OpNode]:
    """Return the nodes that return a value with a part of it overwritten."""
    users = dict.fromkeys(user for user, _ in value.uses if user is not None)
    return [user for user in users if overwrites_part(user) and user.inputs[0] is value]


def _why_copied(graph: Graph, target: Value, chain: Sequence[OpNode]) -> str | None:
    type = target.type
    is_updated = target in graph.updates
    if (is_updated and graph.is_replaced(target)) or not isinstance(type, TensorType):
        return "its type changes"
    if type.layout is not torch.strided or (not type.symbols and has_overlapping_elements(type)):
        return "its elements overlap"
    place = {node: index for index, node in enumerate(graph.body)}
    for node in chain:
        if node.outputs[0].type != type:
            return f"{node.name} makes a tensor of another type"
        reader = _find_late_reader(node, place)
        if reader is not None:
            return f"{reader} reads what {node.name} would overwrite"
    return None


def _find_late_reader(writer: OpNode, place: Mapping[OpNode, int]) -> str | None:
    """Return who reads what a node overwrites, while it does so or later; None if nobody does."""
    old = writer.inputs[0]
    aliases = [old]
    for alias in aliases:
        for user, _ in alias.uses:
            if user is None:
                return "the caller"
            if user is writer and (alias is not old or old in writer.inputs[1:]):
                return "the node itself"
            if place[user] > place[writer]:
                return user.name
            if is_view(user):
                aliases += [value for value in user.outputs if value not in aliases]
    return None
