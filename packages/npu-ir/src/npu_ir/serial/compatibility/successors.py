"""Ops that PyTorch removed, each with the op that computes the same by other names of arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from npu_ir.core.node import OpNode
from npu_ir.errors import GraphError
from npu_ir.ops.arguments import path_of_operand
from npu_ir.ops.calls import bind_arguments
from npu_ir.ops.schema import OpSchema, resolve, schema_of


@dataclass(frozen=True, slots=True)
class Successor:
    """The op that takes the place of one that is gone; results are the same in number, type and value.

    Attributes:
        op_type: The op to call.
        names: The new names of arguments, by the old ones; others keep theirs.
        choices: By argument that became another one, and by the values that it had, the new argument and its
            value; None leaves it out.
    """

    op_type: str
    names: Mapping[str, str] = field(default_factory=dict)
    choices: Mapping[str, Mapping[Any, tuple[str, Any] | None]] = field(default_factory=dict)

    def attrs_of(self, attrs: Mapping[str, Any]) -> dict[str, Any]:
        """Return attributes of a call of the old op, as those of a call of this one."""
        renamed = {}
        for name, value in attrs.items():
            if name not in self.choices:
                renamed[self.names.get(name, name)] = value
            elif (chosen := self.choices[name][value]) is not None:
                renamed[chosen[0]] = chosen[1]
        return renamed

    def operand_of(self, operand: str) -> str:
        """Return the place of an input in a call of the old op, as that in a call of this one."""
        name = path_of_operand(operand)[0]
        return self.names.get(name, name) + operand.removeprefix(name)

    def accepts(self, calls: Sequence[OpNode]) -> bool:
        """Return whether this process has the op, and it takes every one of these calls of the old one."""
        op = resolve(self.op_type)
        return op is not None and all(self._accepts(schema_of(op), node) for node in calls)

    def _accepts(self, schema: OpSchema, node: OpNode) -> bool:
        if node.operands is None:
            return False
        operands = tuple(map(self.operand_of, node.operands))
        try:
            bind_arguments(schema, len(node.inputs), operands, self.attrs_of(node.attrs))
        except (GraphError, KeyError):
            return False
        return True


SUCCESSORS: Mapping[str, Successor] = {
    # Gone since 2.14.
    "aten.cholesky.default": Successor("aten.linalg_cholesky.default"),
    "aten.qr.default": Successor(
        "aten.linalg_qr.default",
        names={"self": "A"},
        choices={"some": {True: None, False: ("mode", "complete")}},
    ),
}
