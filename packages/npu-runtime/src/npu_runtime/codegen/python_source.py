"""Python source of a sequence of instructions: one line each, values deleted after their last use."""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from npu_ir import Value
from npu_ir.ops.calls import Slot
from npu_runtime.lowering.instruction import Instruction, Returns

_INDENT = "        "
_RESERVED = frozenset({"bind", "run", "ops", "weights", "literals", "symbols", "__debug__"})


@dataclass(frozen=True, slots=True)
class Source:
    """The source of a generated function.

    Attributes:
        text: Python code that defines ``bind(ops, weights, literals)``, which returns the function.
        ops: The callables for ``bind``.
        weights: The values that are bound once; ``bind`` gets their tensors.
        literals: The arguments for ``bind`` that have no Python literal.
        lines: The instruction on each line that has one.
        names: The Python name of each value.
    """

    text: str
    ops: tuple[Any, ...]
    weights: tuple[Value, ...]
    literals: tuple[Any, ...]
    lines: Mapping[int, Instruction]
    names: Mapping[Value, str]


def generate_source(
    name: str, inputs: Sequence[Value], instructions: Sequence[Instruction], results: Sequence[Value | Any]
) -> Source:
    """Return the source of a function that runs instructions.

    Args:
        name: The name of the graph, for the comment at the top.
        inputs: The parameters of the function, in order.
        instructions: The instructions, in order. Values that are neither parameters nor outputs of them are
            bound once.
        results: The values and plain data to return, as a tuple.
    """
    return _Writer(inputs, instructions, results).write(name)


@dataclass
class _Names:
    """Unique Python names by key."""

    taken: set[str] = field(default_factory=lambda: set(_RESERVED))
    known: dict[Any, str] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    def of(self, key: Any, wanted: str) -> str:
        if key not in self.known:
            # ASCII only: Python normalizes identifiers (NFKC), so that different letters may become the
            # same name.
            base = re.sub(r"[^0-9A-Za-z_]", "_", wanted)
            base = f"_{base}" if not base or base[0].isdigit() or keyword.iskeyword(base) else base
            name = base
            while name in self.taken:
                self.counts[base] = self.counts.get(base, 1) + 1
                name = f"{base}__{self.counts[base]}"
            self.taken.add(name)
            self.known[key] = name
        return self.known[key]


class _Writer:
    """Writer of one generated function."""

    def __init__(
        self, inputs: Sequence[Value], instructions: Sequence[Instruction], results: Sequence[Any]
    ) -> None:
        self._inputs = inputs
        self._instructions = instructions
        self._results = results
        self._names = _Names()
        self._ops: dict[int, Any] = {}
        self._literals: dict[Any, Any] = {}
        self._lists: dict[str, str] = {}  # lists of bound values alone: built once, in `bind`
        defined = {*inputs, *(value for instruction in instructions for value in instruction.outputs)}
        read = [value for instruction in instructions for value in instruction.inputs] + [
            item for item in results if isinstance(item, Value)
        ]
        self._weights = tuple(dict.fromkeys(value for value in read if value not in defined))
        self._bound = frozenset(self._weights)
        self._dead_after = _dead_values(instructions, results, {*inputs, *self._weights})

    def write(self, name: str) -> Source:
        for value in (*self._inputs, *self._weights):
            self._value_name(value)
        body: list[str] = []
        at: dict[int, Instruction] = {}
        previous = None
        for instruction, freed in zip(self._instructions, self._dead_after, strict=True):
            provenance = str(instruction.node.provenance)
            if provenance != previous and provenance:
                body.append(f"# {_to_printable_ascii(provenance)}")
            previous = provenance
            at[len(body)] = instruction
            body.append(self._call_line(instruction))
            # At once, not at the end of the call: the allocator reuses the memory for the next instructions.
            if freed:
                body.append(f"del {', '.join(map(self._value_name, freed))}")
        returned = ", ".join(
            self._expression(item, ()) if not isinstance(item, Value) else self._value_name(item)
            for item in self._results
        )
        body.append(f"return ({returned}{',' if len(self._results) == 1 else ''})")
        head = [
            f"# The program of graph {_to_printable_ascii(name)}: {len(self._instructions)} steps.",
            "",
            "",
            "def bind(ops, weights, literals):",
            *self._unpacking_lines([self._names.known["op", key] for key in self._ops], "ops"),
            *self._unpacking_lines(list(map(self._value_name, self._weights)), "weights"),
            *self._unpacking_lines([self._names.known["literal", key] for key in self._literals], "literals"),
            *(f"    {name} = {text}" for text, name in self._lists.items()),
            "",
            f"    def run({', '.join(['symbols', *map(self._value_name, self._inputs)])}):",
        ]
        lines = [*head, *(_INDENT + line for line in body), "", "    return run", ""]
        return Source(
            "\n".join(lines),
            tuple(self._ops.values()),
            self._weights,
            tuple(self._literals.values()),
            {len(head) + index + 1: instruction for index, instruction in at.items()},
            {value: name for value, name in self._names.known.items() if isinstance(value, Value)},
        )

    @staticmethod
    def _unpacking_lines(names: Sequence[str], what: str) -> list[str]:
        if not names:
            return []
        return ["    (", *(f"        {name}," for name in names), f"    ) = {what}"]

    def _value_name(self, value: Value) -> str:
        return self._names.of(value, value.name)

    def _op_name(self, instruction: Instruction) -> str:
        key = id(instruction.function)
        self._ops[key] = instruction.function
        is_op = instruction.kernel.startswith("torch._C.")
        short = (
            instruction.kernel.rpartition(".")[2] if is_op else instruction.kernel.removeprefix("torch.ops.")
        )
        return self._names.of(("op", key), f"op_{short}")

    def _call_line(self, instruction: Instruction) -> str:
        arguments = ["symbols"] if instruction.needs_symbols else []
        binding, inputs = instruction.binding, instruction.inputs
        arguments += [self._expression(item, inputs) for item in binding.positional]
        arguments += [f"{name}={self._expression(item, inputs)}" for name, item in binding.keyword.items()]
        call = f"{self._op_name(instruction)}({', '.join(arguments)})"
        if instruction.returns is Returns.NOTHING:
            return call
        targets = ", ".join(map(self._value_name, instruction.outputs))
        is_unpacked = instruction.returns is Returns.SEQUENCE and len(instruction.outputs) == 1
        return f"{targets}{',' if is_unpacked else ''} = {call}"

    def _list_expression(self, item: list[Any], parts: list[str], inputs: Sequence[Value]) -> str:
        text = f"[{', '.join(parts)}]"
        bound = [type(part) is Slot and inputs[part.index] in self._bound for part in item]
        if not item or not all(bound):
            return text
        self._lists[text] = self._names.of(("list", text), "tensors")
        return self._lists[text]

    def _expression(self, item: Any, inputs: Sequence[Value]) -> str:
        """Return the Python expression of an argument."""
        if type(item) is Slot:
            return self._value_name(inputs[item.index])
        if type(item) in (list, tuple):
            parts = [self._expression(part, inputs) for part in item]
            if type(item) is list:
                return self._list_expression(item, parts, inputs)
            return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"
        if item is None or type(item) in (bool, int, str):
            return repr(item)
        if type(item) is float and item - item == 0:  # finite
            return repr(item)
        key = type(item), str(item)  # non-finite and complex numbers, devices, dtypes, layouts
        self._literals[key] = item
        wanted = "number" if isinstance(item, (float, complex)) else str(item).removeprefix("torch.")
        return self._names.of(("literal", key), wanted)


def _to_printable_ascii(text: str) -> str:
    """Return a text as printable ASCII, safe in a comment."""
    visible = "".join(letter if letter.isprintable() else " " for letter in text)
    return visible.encode("ascii", "backslashreplace").decode()


def _dead_values(
    instructions: Sequence[Instruction], results: Sequence[Any], outside: set[Value]
) -> list[list[Value]]:
    """Return for each instruction the values that are dead after it."""
    last: dict[Value, int] = {}
    for index, instruction in enumerate(instructions):
        last.update(dict.fromkeys((*instruction.inputs, *instruction.outputs), index))
    for item in results:
        if isinstance(item, Value):
            last.pop(item, None)
    freed: list[list[Value]] = [[] for _ in instructions]
    for value, index in last.items():
        if value not in outside:
            freed[index].append(value)
    return freed
