"""Insertion of second runs: copies of nodes, and of views of their outputs, before the first late reader."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from npu_ir import Graph, OpNode, Value
from npu_passes.library.training.recompute.liveness import Block, Simulation, Unit


class SecondRuns:
    """The second runs in a graph; they are added in the order of the first ones.

    Args:
        graph: The graph, which is edited.
        chosen: The program of the graph, with the nodes that are to run again.
    """

    def __init__(self, graph: Graph, chosen: Simulation) -> None:
        self._graph = graph
        self._chosen = chosen
        self._copies: dict[Value, Value] = {}
        self._made: list[OpNode] = []

    def add(self, unit: Unit) -> list[str]:
        """Add the second run of a node; return the names of the new nodes."""
        count = len(self._made)
        place = self._chosen.again[unit]
        block_of = self._chosen.program.block_of
        inputs = [
            self._copy_of(value)
            if (block := block_of.get(value)) and self._chosen.reads_second(block, place)
            else value
            for value in unit.node.inputs
        ]
        self._insert(unit.node, inputs, place)
        for block in unit.blocks:
            self._redirect(block)
        return [node.name for node in self._made[count:]]

    def erase_unread(self) -> None:
        """Erase new nodes that nothing reads: what read them runs later only."""
        for node in reversed(self._made):
            if not any(value.use_count for value in node.outputs):
                self._graph.erase(node)

    def _redirect(self, block: Block) -> None:
        """Have late readers of a block read its second content; erase views that nothing reads any more."""
        program = self._chosen.program
        for position in block.reads:
            if self._chosen.reads_second(block, position):
                reader = program.units[position].node
                for index, value in enumerate(reader.inputs):
                    if program.block_of.get(value) is block:
                        self._graph.set_input(reader, index, self._copy_of(value))
        for view in reversed(block.views):
            if not any(value.use_count for value in view.outputs):
                self._graph.erase(view)

    def _copy_of(self, value: Value) -> Value:
        """Return the second content of a value; views are copied once somebody reads them."""
        if value not in self._copies:
            view = value.producer
            assert view is not None
            block_of = self._chosen.program.block_of
            block = block_of[value]
            inputs = [self._copy_of(item) if block_of.get(item) is block else item for item in view.inputs]
            self._insert(view, inputs, self._chosen.again[block.unit])
        return self._copies[value]

    def _insert(self, node: OpNode, inputs: Sequence[Value], place: int) -> None:
        copy = self._graph.insert(
            node.op_type,
            inputs,
            node.attrs,
            types=[value.type for value in node.outputs],
            operands=node.operands,
            name=node.name,
            before=self._chosen.program.units[place].node,
            provenance=dataclasses.replace(node.provenance, phase="backward"),
        )
        self._made.append(copy)
        for old, new in zip(node.outputs, copy.outputs, strict=True):
            self._graph.add_origins(new, old)
            self._copies[old] = new
