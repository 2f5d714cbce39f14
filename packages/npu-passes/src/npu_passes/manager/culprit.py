"""`Culprit`: the one rewrite that changed what a graph computes."""

from __future__ import annotations

from dataclasses import dataclass

from npu_ir import Graph
from npu_passes.core.journal import Rewrite


@dataclass(frozen=True)
class Culprit:
    """The rewrite after which results differ.

    Attributes:
        pass_text: The pass that made it, with its options.
        rewrite: Its journal entry.
        number: Its position among all rewrites of the whole run, from 1.
        difference: The value that differs, and by how much.
        before: The graph before the rewrite.
        after: The graph after the rewrite.
    """

    pass_text: str
    rewrite: Rewrite
    number: int
    difference: str
    before: Graph
    after: Graph

    def __str__(self) -> str:
        nodes = f" of {', '.join(self.rewrite.paths)}" if self.rewrite.nodes else ""
        return f"{self.pass_text}: rewrite {self.number}, {self.rewrite.rule!r}{nodes}: {self.difference}"
