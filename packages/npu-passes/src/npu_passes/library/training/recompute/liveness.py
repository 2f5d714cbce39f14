"""Live bytes of a graph whose nodes run in order, some of them a second time.

Positions count the nodes of the body that compute something: views take neither time nor memory. The memory
of arguments and of the prologue is not counted, nor that of updates that take over what they update.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from npu_ir import Graph, OpNode, TensorType, Value
from npu_ir.core.storage import span_bytes
from npu_passes.rewriting.aliasing import shared_input

_ALIGNMENT = 64


@dataclass(slots=True, eq=False)
class Block:
    """The memory of one output of a node, and of the views of it.

    Attributes:
        bytes: Its size.
        unit: The node that computes it.
        reads: The positions of the nodes that read it, in order.
        views: The nodes that are views of it, in order.
        is_result: Whether the graph returns it, or a view of it, or updates state with it.
    """

    bytes: int
    unit: Unit
    reads: list[int] = field(default_factory=list)
    views: list[OpNode] = field(default_factory=list)
    is_result: bool = False


@dataclass(slots=True, eq=False)
class Unit:
    """A node that computes something.

    Attributes:
        node: The node.
        position: Its position.
        inputs: The blocks that it reads.
        blocks: The memory of its outputs.
        readers: The nodes that read any of these, in order.
    """

    node: OpNode
    position: int
    inputs: Sequence[Block] = ()
    blocks: Sequence[Block] = ()
    readers: Sequence[Unit] = ()


class Program:
    """The nodes of a graph, and the memory that they read and write.

    Attributes:
        units: The nodes that compute something, in order.
        block_of: The memory of each value that the body computes.
    """

    def __init__(self, graph: Graph) -> None:
        self.units: list[Unit] = []
        self.block_of: dict[Value, Block] = {}
        donated = {value for target, value in graph.updates.items() if target.type == value.type}
        for node in graph.body:
            source = shared_input(node)
            if source is None:
                self._add(node, donated)
            elif source in self.block_of:
                block = self.block_of[source]
                block.views.append(node)
                self.block_of.update(dict.fromkeys(node.outputs, block))
        for value in graph.returned_values:
            if value in self.block_of:
                self.block_of[value].is_result = True
        for unit in self.units:
            reads = {read for block in unit.blocks for read in block.reads}
            unit.readers = [self.units[read] for read in sorted(reads)]

    def _add(self, node: OpNode, donated: set[Value]) -> None:
        unit = Unit(node, len(self.units))
        read = (self.block_of[value] for value in node.inputs if value in self.block_of)
        unit.inputs = tuple(dict.fromkeys(read))
        for block in unit.inputs:
            block.reads.append(unit.position)
        unit.blocks = [Block(0 if value in donated else _memory_bytes(value), unit) for value in node.outputs]
        self.block_of.update(zip(node.outputs, unit.blocks, strict=True))
        self.units.append(unit)


class Simulation:
    """The live bytes of a program, some of whose nodes run twice.

    Args:
        program: The program.
        ends: By node the last position that reads its first outputs; what reads later takes the second ones.

    Attributes:
        program: The program.
        ends: The same, without nodes whose second outputs nothing reads.
        again: The position before which each of these runs again: that of the first reader.
        live: For each position the most bytes that are live there, or in second runs before it.
        peak: The most of them.
        peak_position: The first position that takes so many.
    """

    def __init__(self, program: Program, ends: Mapping[Unit, int]) -> None:
        self.program = program
        self.again = _second_positions(ends)
        self.ends = {unit: ends[unit] for unit in self.again}
        # Second runs come before the node at their position, in the order of the first runs.
        runs = [
            *((unit.position, 1, unit.position, unit) for unit in program.units),
            *((place, 0, unit.position, unit) for unit, place in self.again.items()),
        ]
        runs.sort(key=lambda run: run[:3])
        self.live = [0] * len(program.units)
        for (place, *_), live in zip(runs, self._live_bytes(runs), strict=True):
            self.live[place] = max(self.live[place], live)
        self.peak = max(self.live, default=0)
        self.peak_position = self.live.index(self.peak) if self.live else 0

    def reads_second(self, block: Block, position: int) -> bool:
        """Return whether what runs at a position reads the second content of a block."""
        return position > self.ends.get(block.unit, position)

    def _live_bytes(self, runs: Sequence[tuple[int, int, int, Unit]]) -> list[int]:
        """Return the bytes that are live during each run."""
        ranges: dict[tuple[Block, bool], list[int]] = {}
        for step, (place, is_first, _, unit) in enumerate(runs):
            for block in unit.inputs:
                if not block.is_result:
                    ranges[block, self.reads_second(block, place)][1] = step
            for block in unit.blocks:
                ranges[block, not is_first] = [step, len(runs) - 1 if block.is_result else step]
        changes = [0] * (len(runs) + 1)
        for (block, _), (first, last) in ranges.items():
            changes[first] += block.bytes
            changes[last + 1] -= block.bytes
        return list(itertools.accumulate(changes[:-1]))


def reads_of(unit: Unit, again: Mapping[Unit, int]) -> list[int]:
    """Return the positions where outputs of a node are read, by nodes some of which run again."""
    return [
        *(reader.position for reader in unit.readers),
        *(again[reader] for reader in unit.readers if reader in again),
    ]


def _second_positions(ends: Mapping[Unit, int]) -> dict[Unit, int]:
    """Return the position of the first reader of the second outputs of each node, if there is one."""
    again: dict[Unit, int] = {}
    # In reverse: all readers of a node come before it.
    for unit in sorted(ends, key=lambda unit: -unit.position):
        late = [read for read in reads_of(unit, again) if read > ends[unit]]
        if late:
            again[unit] = min(late)
    return again


def _memory_bytes(value: Value) -> int:
    count = span_bytes(value.type) if isinstance(value.type, TensorType) else 0
    return -(-count // _ALIGNMENT) * _ALIGNMENT
