"""Check of everything that a pass promises, on given graphs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import torch

from npu_ir import Graph, GraphError, NpuError, OpNode, format_ir
from npu_ir.core.tensor_bytes import same_data
from npu_ir.graph.requirement import require_graph
from npu_passes.core.base import Pass
from npu_passes.core.journal import Journal, Rewrite, use_journal
from npu_passes.core.pass_text import parse_passes
from npu_passes.errors import PassError
from npu_passes.manager.checked_mode import (
    Checked,
    ObservedRun,
    Trial,
    find_first_difference,
    find_wrong_origin,
)
from npu_passes.manager.manager import PassManager
from npu_passes.manager.rounds import edit_counts, run_once

__tracebackhide__ = True  # pytest shows the error, and frames of the plugin, not those of this module


def check_pass(
    pass_: Pass | type[Pass],
    graphs: Graph | Iterable[Graph],
    *,
    weights: Mapping[str, torch.Tensor] | None = None,
    data: Checked | None = None,
) -> int:
    """Run a pass over graphs, and return the number of graphs that it changed, for a test to assert.

    The rules for each graph: the pass returns True if and only if it changed the graph; the new graph is
    valid, computes the same within the pass's numerics, has provenance for new nodes, and records
    correct origins of values (`npu_ir.Value.origins`); a second run changes nothing, if the pass claims
    so; and the caller's graph is not changed. The options of the pass survive its text form.

    Args:
        pass_: The pass, or its class for the default options.
        graphs: Graphs to run it on; include at least one that it changes, and one that it does not.
        weights: By ``state_dict`` key, for all graphs; random by default.
        data: Data to run the graphs on; by default one call on random data.

    Raises:
        GraphError: One of ``graphs`` is not a graph.
        PassError: The pass breaks one of these rules; names the rule and the graph.
    """
    item = pass_() if isinstance(pass_, type) else pass_
    if not isinstance(item, Pass):
        raise PassError(f"{item!r} is not a pass", fix="give a pass, or a class derived from Pass")
    graphs = [graphs] if isinstance(graphs, Graph) else list(graphs)
    if not graphs:
        raise PassError(f"there is no graph to check {item} on", fix="give at least one that it changes")
    data = data or Checked()
    if weights is not None:
        data = replace(data, weights=weights)
    check_text_form(item)
    return sum([_Check(item, graph, data).run() for graph in graphs])


def check_text_form(item: Pass) -> None:
    """Require that a pass with its options equals what its text form says."""
    text = str(item)
    again = parse_passes(text, known={item.name: type(item)})
    if again != [item]:
        raise PassError(
            f"{item!r} differs from its text form: {text}",
            fix="options are annotated fields, compared by ==: do not override __eq__, __str__ or __init__",
        )


class _Check:
    """Check of one pass on one graph."""

    def __init__(self, item: Pass, graph: Graph, data: Checked) -> None:
        require_graph(graph)
        graph.check()
        self._item = item
        self._given = graph
        self._before = ObservedRun(graph)
        self._trial = Trial(graph, data, self._before.observe)
        self._graph = graph.clone()
        self._graph.track_origins()
        self._nodes = {node: None for part in self._graph.graphs() for node in part.nodes}

    def run(self) -> bool:
        """Return whether the pass changes the graph."""
        text, constants = _format_graph(self._given), _copy_constants(self._given)
        journal = Journal()
        changed = self._run(journal)
        self._check_valid()
        self._check_values()
        self._check_provenance(journal.rewrites)
        if self._item.is_idempotent and self._run(Journal()):
            raise self._error(
                "changes the graph in a second run, too", "do all of it in one, or say is_idempotent = False"
            )
        # The manager runs the pass on a copy; a change of the original went through shared objects or data.
        PassManager([self._item]).run(self._given)
        data = _copy_constants(self._given)
        if text != _format_graph(self._given) or not all(
            same_data(data.get(name), content) for name, content in constants.items()
        ):
            raise self._error(
                "changed the graph of the caller",
                "edit nothing but the graph that run gets, and no tensor in place",
            )
        return changed

    def _run(self, journal: Journal) -> bool:
        """Run the pass once; return whether it changed the graph."""
        text, edits = _format_graph(self._graph), edit_counts(self._graph)
        with use_journal(journal):
            said = run_once(self._item, self._graph)
        for part in self._graph.graphs():
            part.settle_origins()
        changed, edited = text != _format_graph(self._graph), edits != edit_counts(self._graph)
        if changed != edited:
            problem = "by other means than the graph's methods" if changed else "to what it was before"
            raise self._error(
                f"edits the graph {problem}", "edit only through the graph's methods, where needed"
            )
        if said != changed:
            raise self._error(
                f"returned {said}, but the graph is {'another' if changed else 'the same'}",
                "run(graph) returns True exactly when it edited the graph",
            )
        return changed

    def _check_valid(self) -> None:
        try:
            self._graph.check()
        except GraphError as error:
            raise PassError(
                f"{self._item} broke graph {self._given.name!r}: {error.message}", where=error.where
            ) from error

    def _check_values(self) -> None:
        after = ObservedRun(self._graph)
        try:
            results = self._trial.results(self._graph, after.observe)
        except NpuError as error:
            raise self._error(f"leaves a graph that cannot be run: {error.message}", error.fix) from error
        problem = find_first_difference(results, self._trial.first, self._item.numerics)
        if problem is not None:
            raise self._error(
                f"changed what the graph computes: {problem}",
                f"correct the rewrite; results are {self._item.numerics}, or what npu_passes.within allows",
            )
        problem = find_wrong_origin(self._before, after, self._item.numerics)
        if problem is not None:
            raise self._error(
                f"records a wrong origin of a value: {problem}",
                "add new nodes with edit.call to compute something else; edit.replace(old, new) is for equal"
                " values",
            )

    def _check_provenance(self, rewrites: list[Rewrite]) -> None:
        made = [node for part in self._graph.graphs() for node in part.nodes if node not in self._nodes]
        gone = [node for node in self._nodes if node.is_erased]
        bare = [node for node in made if not (node.in_prologue or _has_provenance(node))]
        if bare and gone and all(map(_has_provenance, gone)):
            raise self._error(
                f"gives node {bare[0].name!r} no provenance",
                "add it with edit.call inside self.rewrite(...), or insert it with provenance=",
            )
        for rewrite, lost in _find_unrecorded(rewrites, gone, made):
            raise self._error(
                f"does not record that node {lost!r} was fused (rewrite {rewrite.rule!r})",
                "add the new node with edit.call inside self.rewrite(...)",
            )

    def _error(self, problem: str, fix: str | None) -> PassError:
        return PassError(f"{self._item} {problem}", where=f"graph {self._given.name!r}", fix=fix)


def _find_unrecorded(
    rewrites: list[Rewrite], gone: list[OpNode], made: list[OpNode]
) -> Iterator[tuple[Rewrite, str]]:
    """Yield the names of fused nodes that the provenance of no new node records, with their rewrites."""
    by_name: dict[str, list[OpNode]] = {}
    for node in gone:
        by_name.setdefault(node.name, []).append(node)
    new = {node.name for node in made}
    # Nodes inserted without an `Edit` are in no rewrite: any one without new nodes may have inserted them.
    made_by_none = new.difference(*(item.made for item in rewrites))
    recorded = {name for node in made for name in node.provenance.fused_from}
    for rewrite in rewrites:
        removed = [node for name in rewrite.nodes for node in by_name.get(name, ())]
        is_replaced = not new.isdisjoint(rewrite.made) if rewrite.made else bool(made_by_none)
        if len(removed) < 2 or not is_replaced:
            continue
        names = [name for node in removed for name in (node.provenance.fused_from or (node.name,))]
        yield from ((rewrite, name) for name in names if name not in recorded)


def _has_provenance(node: OpNode) -> bool:
    return bool(node.provenance.module or node.provenance.source)


def _format_graph(graph: Graph) -> str:
    """Return everything editable in a graph as text; `format_ir` omits the names of fused nodes."""
    fused = [node.provenance.fused_from for part in graph.graphs() for node in part.nodes]
    return f"{format_ir(graph, provenance=True)}{fused}"


def _copy_constants(graph: Graph) -> dict[str, torch.Tensor]:
    """Return copies of the data of the graph's constants."""
    values = [value for part in graph.graphs() for value in part.arguments]
    return {
        f"{index} {value.name}": value.data.clone()
        for index, value in enumerate(values)
        if value.data is not None
    }
