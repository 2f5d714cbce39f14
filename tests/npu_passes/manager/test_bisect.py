"""Bisecting: the pass, and the one rewrite, that changed what a graph computes."""

from __future__ import annotations

import pytest
import torch

from npu_ir import Graph
from npu_passes import Checked, Pass, PassError, bisect
from tests.support.passes.sample_passes import DropAlias, Nudge, ReluToClamp, ReluToGelu
from tests.support.small_programs import program


@pytest.fixture
def wide() -> Graph:
    """A graph of 20 relus, whose results are added up."""
    relus = [f"%r{index}: f32[4] = aten.relu.default(self=%a)" for index in range(20)]
    sums = [
        f"%s{index}: f32[4] = aten.add.Tensor(self=%{f's{index - 1}' if index else 'a'}, other=%r{index})"
        for index in range(20)
    ]
    alias = "%a: f32[4] = aten.alias.default(self=%x)"
    return program("\n".join(["input %x: f32[4]", alias, *relus, *sums, "return %s19"]))


def test_the_one_wrong_rewrite_of_many_is_found(wide: Graph) -> None:
    given = wide.clone()

    culprit = bisect(wide, [DropAlias, ReluToClamp(wrong="r13")])

    assert culprit.pass_text == "relu-to-clamp{wrong=r13}"
    assert (culprit.rewrite.nodes, culprit.number) == (("r13",), 15)
    assert str(culprit).startswith("relu-to-clamp{wrong=r13}: rewrite 15, 'to-clamp' of r13: result differs")
    before, after = (list(graph.nodes_of("aten.relu.default")) for graph in (culprit.before, culprit.after))
    assert {node.name for node in before} - {node.name for node in after} == {"r13"}
    assert wide == given


def test_nothing_is_found_where_nothing_is_wrong(wide: Graph) -> None:
    assert bisect(wide, [DropAlias, ReluToClamp]) is None


def test_a_tolerance_holds_for_all_passes_together(wide: Graph) -> None:
    assert bisect(wide, [Nudge]) is None

    culprit = bisect(wide, [Nudge], rtol=1e-7)

    assert culprit.rewrite.rule == "run"


def test_what_only_the_second_call_shows_is_found(wide: Graph) -> None:
    good, bad = (((torch.full((4,), number),), {}) for number in (1.0, -1.0))

    assert bisect(wide, [ReluToClamp(wrong="r13")], data=Checked(calls=[good])) is None

    culprit = bisect(wide, [ReluToClamp(wrong="r13")], data=Checked(calls=[good, bad]))

    assert culprit.rewrite.nodes == ("r13",)


def test_a_graph_that_cannot_be_run_cannot_be_bisected(wide: Graph) -> None:
    with pytest.raises(PassError, match="fails before any pass"):
        bisect(wide, [ReluToGelu], data=Checked(calls=[((), {})]))


def test_an_edit_between_rewrites_is_found(wide: Graph) -> None:
    class Mixed(Pass):
        """Rewrite rightly, and edit wrongly in between."""

        name = "mixed"
        is_idempotent = True

        def run(self, graph: Graph) -> bool:
            first, second, *_ = graph.nodes_of("aten.relu.default")
            for node in (first, second):
                with self.rewrite(graph, "right", node) as edit:
                    edit.replace(node.outputs[0], edit.call("aten.clamp_min.default", node.inputs[0], 0))
                if node is first:
                    added = graph.node("s3")
                    graph.set_input(added, 1, added.inputs[0])
            return True

    culprit = bisect(wide, Mixed)

    assert (culprit.rewrite.rule, culprit.number) == ("run", 2)


def test_a_pass_that_is_not_deterministic_cannot_be_bisected(wide: Graph) -> None:
    class Moody(ReluToClamp):
        """Be wrong in the first run only."""

        name = "moody"

        def run(self, graph: Graph) -> bool:
            object.__setattr__(self, "wrong", "r13" if self.wrong == "never" else "no more")
            return super().run(graph)

    with pytest.raises(PassError, match="cannot be bisected: it makes different rewrites each time it runs"):
        bisect(wide, [Moody])
