"""Which values lie in one memory, and when it is needed for the last time."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from npu_ir import Value

# For each step and output: the inputs of the step, by number, whose memory the output may share.
Shares = Sequence[Sequence[Collection[int]]]


@dataclass(frozen=True, slots=True)
class Sharing:
    """What is known of the memory of the outputs of one step.

    Attributes:
        shares: For each output the inputs, by number, whose memory it may share.
        is_certain: Whether it shares all of these, in each call.
    """

    shares: Sequence[Collection[int]]
    is_certain: bool


class Memory:
    """The values of a program, grouped: those of one group may share memory.

    Args:
        reads: For each step, in order, the values it reads and the values it makes.
        shares: What the outputs share.
        kept: The values that are returned, or kept for the next call.
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
                    self._join(output, inputs[number])
        self._end = len(reads)
        for value in kept:
            self.last_use[value] = self._end
        self._group_end: dict[Value, int] = {}
        for value, index in self.last_use.items():
            group = self.group(value)
            self._group_end[group] = max(index, self._group_end.get(group, 0))

    def group(self, value: Value) -> Value:
        """Return the value that stands for the memory of ``value``."""
        root = value
        while (parent := self._parent.get(root, root)) is not root:
            root = parent
        while (parent := self._parent.get(value, value)) is not root:
            self._parent[value], value = root, parent
        return root

    def end(self, value: Value) -> int:
        """Return the number of the last step that reads the memory of ``value``; beyond the last one if it is kept."""
        return self._group_end[self.group(value)]

    def groups(self) -> Mapping[Value, list[Value]]:
        """Return the values that share memory, by the one that stands for them, in the order of the program."""
        groups: dict[Value, list[Value]] = {}
        for value in self.last_use:
            groups.setdefault(self.group(value), []).append(value)
        return groups

    def _join(self, value: Value, source: Value) -> None:
        left, right = self.group(source), self.group(value)
        if left is not right:
            self._parent[right] = left
