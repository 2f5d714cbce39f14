"""Backends that take some nodes: those that a number chooses, or those of some ops."""

import zlib
from collections.abc import Sequence
from typing import Any

from npu_ir import OpNode
from tests.support.backends.broken_backends import Program, Sound


class Some(Sound):
    """Takes those nodes that a number chooses, or those of some ops."""

    def __init__(self, name: str = "some", seed: int | None = None, ops: Sequence[str] = ()) -> None:
        self.name = name  # type: ignore[misc]
        self.seed = seed
        self.ops = ops
        self.given: list[list[Any]] = []

    def supports(self, node: OpNode) -> str | None:
        if super().supports(node) is not None:
            return "it is not for any backend"
        is_mine = node.op_type in self.ops
        if self.seed is not None:
            is_mine = zlib.crc32(f"{self.seed} {self.name} {node.name}".encode()) % 2 == 0
        return None if is_mine else "it was not chosen"

    def run(self, program: Program, inputs: Sequence[Any]) -> Sequence[Any]:
        self.given.append(list(inputs))
        return super().run(program, inputs)
