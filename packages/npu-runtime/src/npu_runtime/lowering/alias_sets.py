"""Alias sets: union-find over the values that may share memory, with the last use of each set."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from npu_ir import Value

# For each instruction and output: the inputs of the instruction, by number, whose memory the output may
# share.
Shares = Sequence[Sequence[Collection[int]]]


@dataclass(frozen=True, slots=True)
class OutputAliasing:
    """Aliasing of the outputs of one instruction.

    Attributes:
        shares: For each output the inputs, by number, whose memory it may share.
        is_certain: Whether it shares the memory of all of these, in each call.
    """

    shares: Sequence[Collection[int]]
    is_certain: bool


class AliasSets:
    """Alias sets of the values of a program: values of one set may share memory.

    Disjoint-set forest (union-find). Each output is joined with all inputs whose memory it may share, so a
    set is conservative: its members may share memory, but need not. Without union by rank: the input's root
    stays the root, so that the representative of a set is never an alias created by an instruction.

    Args:
        reads: For each instruction, in order, its inputs and outputs.
        shares: The possible aliases of the outputs.
        kept: Values that outlive the program: results, and new contents of mutated state.
    """

    def __init__(
        self,
        reads: Sequence[tuple[Sequence[Value], Sequence[Value]]],
        shares: Shares,
        kept: Iterable[Value],
    ) -> None:
        self._parent: dict[Value, Value] = {}
        self.last_use: dict[Value, int] = {}
        for index, ((inputs, outputs), shared) in enumerate(zip(reads, shares, strict=True)):
            for value in (*inputs, *outputs):
                self.last_use[value] = index
            for output, numbers in zip(outputs, shared, strict=True):
                for number in numbers:
                    self._union(output, inputs[number])
        self._end = len(reads)
        for value in kept:
            self.last_use[value] = self._end
        self._set_end: dict[Value, int] = {}
        for value, index in self.last_use.items():
            group = self.representative(value)
            self._set_end[group] = max(index, self._set_end.get(group, 0))

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

    def members(self) -> Mapping[Value, list[Value]]:
        """Return the members of each alias set by representative, in program order."""
        groups: dict[Value, list[Value]] = {}
        for value in self.last_use:
            groups.setdefault(self.representative(value), []).append(value)
        return groups

    def _union(self, value: Value, source: Value) -> None:
        left, right = self.representative(source), self.representative(value)
        if left is not right:
            self._parent[right] = left
