"""Alias sets: union-find over the values that may share memory, with the last use of each set."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from npu_ir import Value
from npu_runtime.lowering.instruction import Instruction


class AliasSets:
    """Alias sets of the values of a program: values of one set may share memory.

    Disjoint-set forest (union-find). Each output is joined with all inputs whose memory it may share, so a
    set is conservative: its members may share memory, but need not. Without union by rank: the input's root
    stays the root, so that the representative of a set is never an alias created by an instruction.

    Args:
        instructions: The instructions of the program, in order.
        kept: Values that outlive the program: results, and new contents of mutated state.

    Attributes:
        last_use: The number of the last instruction that reads or defines a value; past the end if it is
            kept.
    """

    def __init__(self, instructions: Sequence[Instruction], kept: Iterable[Value]) -> None:
        self._parent: dict[Value, Value] = {}
        self.last_use: dict[Value, int] = {}
        for index, instruction in enumerate(instructions):
            for value in (*instruction.inputs, *instruction.outputs):
                self.last_use[value] = index
            for output, numbers in zip(instruction.outputs, instruction.shares, strict=True):
                for number in numbers:
                    self._union(output, instruction.inputs[number])
        for value in kept:
            self.last_use[value] = len(instructions)
        # Memory is needed as long as any value that may reside in it.
        self._set_end: dict[Value, int] = {}
        for value, index in self.last_use.items():
            alias_set = self.representative(value)
            self._set_end[alias_set] = max(index, self._set_end.get(alias_set, 0))

    def representative(self, value: Value) -> Value:
        """Return the representative of the alias set of ``value``."""
        root = value
        while (parent := self._parent.get(root, root)) is not root:
            root = parent
        # Path compression, iterative: chains of views may be longer than Python's recursion limit.
        while (parent := self._parent.get(value, value)) is not root:
            self._parent[value], value = root, parent
        return root

    def end_of(self, value: Value) -> int:
        """Return the last instruction that uses the alias set of ``value``; past the end if it is kept."""
        return self._set_end[self.representative(value)]

    def _union(self, value: Value, source: Value) -> None:
        left, right = self.representative(source), self.representative(value)
        if left is not right:
            self._parent[right] = left
