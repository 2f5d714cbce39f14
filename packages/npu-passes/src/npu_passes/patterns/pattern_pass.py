"""Base class of passes that consist of rules."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping, Sequence
from typing import ClassVar

from npu_ir import Graph, NpuError, OpNode
from npu_passes.core.base import Pass
from npu_passes.errors import PassError
from npu_passes.patterns.matcher import Match, find_matches
from npu_passes.patterns.rule import Rule
from npu_passes.rewriting.value_replacement import ValueReplacer


class PatternPass(Pass):
    """A pass that is a list of rules. At each node the first rule that matches is applied.

    It visits every node once, in order; the new nodes of a rule are visited in the next round.

    Attributes:
        rules: The patterns and their replacements.
    """

    rules: ClassVar[tuple[Rule, ...]] = ()
    _index: ClassVar[Mapping[str, Sequence[Rule]]] = {}

    def __init_subclass__(cls) -> None:
        index: dict[str, list[Rule]] = {}
        if not (isinstance(cls.rules, tuple) and all(isinstance(rule, Rule) for rule in cls.rules)):
            raise PassError(
                f"{cls.__name__}.rules is a tuple of rules, not {reprlib.repr(cls.rules)}",
                fix="mind the comma of a tuple of one: rules = (Rule(...),)",
            )
        names = [rule.name for rule in cls.rules]
        for rule in cls.rules:
            if names.count(rule.name) > 1:
                raise PassError(f"{cls.__name__} has two rules called {rule.name!r}", fix="rename one")
            index.setdefault(rule.pattern.call.op_type, []).append(rule)
        cls._index = index
        super().__init_subclass__()

    def run(self, graph: Graph) -> bool:
        """Apply the rules; linear in the number of nodes."""
        edited = False
        placing = ValueReplacer(graph)
        for node in graph.body:
            for rule in () if node.is_erased else self._index.get(node.op_type, ()):
                if self._apply(placing, graph, node, rule):
                    edited = True
                    break
        return edited

    def _apply(self, placing: ValueReplacer, graph: Graph, node: OpNode, rule: Rule) -> bool:
        """Rewrite the match of ``rule`` at ``node``, unless refused; return whether the graph was edited."""
        edits = graph.edits
        match, refused = self._find_match(graph, node, rule)
        if match is not None:
            refused = self._rewrite(placing, match, rule)
        if refused is not None:
            self.refuse(node, refused, rule.name)
        return graph.edits != edits

    def _find_match(self, graph: Graph, node: OpNode, rule: Rule) -> tuple[Match | None, str | None]:
        """Return the first match that is not refused; if there is none, why the first was refused."""
        refused = None
        try:
            for match in find_matches(graph, node, rule.pattern):
                reason = rule.find_problem(match)
                if reason is None:
                    return match, None
                refused = refused or reason
        except Exception as error:
            message = error.message if isinstance(error, NpuError) else f"{type(error).__name__}: {error}"
            raise PassError(
                f"{self.name}: {rule.name} failed: {message}",
                where=f"node {node.name!r}",
                fix=error.fix if isinstance(error, NpuError) else None,
            ) from error
        return None, refused

    def _rewrite(self, placing: ValueReplacer, match: Match, rule: Rule) -> str | None:
        """Insert the replacement of a match; return why an output is not replaced, if one is not."""
        refused = None
        with self.rewrite(match.graph, rule.name, *match.nodes) as edit:
            for old, new in zip(match.root.outputs, rule.build(edit, match), strict=True):
                if new is not None:
                    refused = placing.replace(edit, old, new) or refused
            # Impure ones, too, which the rewrite itself erases only if they were replaced.
            for node in reversed(match.nodes):
                if not node.is_erased and not any(value.use_count for value in node.outputs):
                    edit.erase(node)
        return refused
