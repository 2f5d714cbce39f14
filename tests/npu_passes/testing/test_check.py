"""The conformance test accepts passes that keep their promises, and says of others which one they break."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest
import torch

from npu_ir import Graph, OpNode, Provenance, extract_ir
from npu_passes import EXACT, Checked, Numerics, Pass, PassError, PassManager, Rewrite, within
from npu_passes.testing import check_pass
from npu_passes.testing.check import _find_unrecorded
from tests.support.corpus.case import Function
from tests.support.passes.sample_passes import Failing, Liar, Picky, ReluToClamp, ReluToGelu
from tests.support.rows import each_row
from tests.support.small_programs import program


def graph_of(function: Any, name: str = "net") -> Graph:
    return extract_ir(Function(function), (torch.ones(2, 3), torch.ones(2, 3)), name=name)


def relu_of_sum(name: str = "net") -> Graph:
    return graph_of(lambda x, y: torch.relu(x + y) * 2, name=name)


def pairs(graph: Graph) -> list[tuple[OpNode, OpNode]]:
    found = []
    for relu in graph.nodes_of("aten.relu.default"):
        producer = relu.inputs[0].producer
        if producer is not None and producer.op_type == "aten.add.Tensor":
            found.append((producer, relu))
    return found


class ClampSums(Pass):
    """Turn ``relu(x + y)`` into ``clamp_min(x + y, 0)`` by way of two nodes that become two."""

    name = "clamp-sums"
    bound: float = 0.0
    words: tuple[str, ...] = ()

    def run(self, graph: Graph) -> bool:
        found = pairs(graph)
        for add, relu in found:
            with self.rewrite(graph, "clamp", add, relu) as edit:
                total = edit.call("aten.add.Tensor", *add.inputs)
                edit.replace(relu.outputs[0], edit.call("aten.clamp_min.default", total, self.bound))
        return bool(found)


def test_a_pass_that_keeps_its_promises_is_accepted() -> None:
    graphs = [relu_of_sum("first"), graph_of(lambda x, y: x * y, name="second")]

    assert check_pass(ClampSums, graphs) == 1
    assert check_pass(ClampSums(words=("a b", "true")), relu_of_sum()) == 1


def test_a_pass_is_checked_on_the_data_that_is_given() -> None:
    graph = relu_of_sum()
    negative, positive = -torch.ones(2, 3), torch.ones(2, 3)

    assert check_pass(ClampSums(bound=0.5), graph, data=Checked(calls=[((positive, positive), {})])) == 1
    with pytest.raises(PassError, match=r"clamp-sums\{bound=0.5\} changed what the graph computes: result "):
        check_pass(ClampSums(bound=0.5), graph, data=Checked(calls=[((negative, positive), {})]))


def test_a_pass_is_checked_on_the_weights_that_are_given() -> None:
    graph = extract_ir(torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU()), (torch.ones(1, 3),))
    weights = {"0.weight": torch.zeros(3, 3), "0.bias": torch.ones(3)}

    assert check_pass(ReluToClamp(wrong="relu"), graph, weights=weights) == 1
    with pytest.raises(PassError, match="relu-to-clamp.* changed what the graph computes"):
        check_pass(ReluToClamp(wrong="relu"), graph, weights={**weights, "0.bias": -torch.ones(3)})


def test_rewrites_that_make_nothing_record_nothing() -> None:
    class ClampAndDropPairs(ClampSums):
        """Also drop pairs of negations."""

        name = "clamp-and-drop-pairs"

        def run(self, graph: Graph) -> bool:
            edited = super().run(graph)
            for outer in list(graph.nodes_of("aten.neg.default")):
                inner = outer.inputs[0].producer
                if inner is not None and inner.op_type == outer.op_type:
                    with self.rewrite(graph, "negations", inner, outer) as edit:
                        edit.replace(outer.outputs[0], inner.inputs[0])
                    edited = True
            return edited

    graph = graph_of(lambda x, y: torch.relu(x + y) - torch.neg(torch.neg(x * y)))

    assert check_pass(ClampAndDropPairs, graph) == 1


def test_the_names_of_fused_nodes_are_looked_up_once_for_all_rewrites() -> None:
    """Not once for each: a pass may make as many rewrites as there are nodes."""

    class Counted(list[OpNode]):
        passes_over = 0

        def __iter__(self) -> Iterator[OpNode]:
            Counted.passes_over += 1
            return super().__iter__()

    nodes = Counted(graph_of(lambda x, y: torch.relu(x + y)).nodes)
    rewrites = [Rewrite("fuse", "pair", ("add", "relu"))] * 100

    found = list(_find_unrecorded(rewrites, nodes, nodes))

    assert len(found) == 200
    assert Counted.passes_over < 10


class FlipsSignsInPlace(Pass):
    """Move the sign of ``-(x * c)`` into the number, in the same node: it stands for another value then."""

    name = "flips-signs-in-place"
    numerics: ClassVar[Numerics] = EXACT
    with_rewrite: bool = True

    def run(self, graph: Graph) -> bool:
        found = [(node.inputs[0].producer, node) for node in graph.nodes_of("aten.neg.default")]
        for mul, neg in found:
            with self.rewrite(graph, "sign", mul, neg) if self.with_rewrite else contextlib.nullcontext():
                graph.set_attrs(mul, {"other": -mul.attrs["other"]})  # type: ignore[operator]
                graph.replace_all_uses(neg.outputs[0], mul.outputs[0])
                if not self.with_rewrite:
                    graph.erase(neg)
        return bool(found)


@each_row("with_rewrite", [True, False])
def test_a_node_may_come_to_stand_for_the_value_behind_it(with_rewrite: bool) -> None:
    graph = graph_of(lambda x, y: torch.neg((x + y) * 2).exp())
    item = FlipsSignsInPlace(with_rewrite=with_rewrite)

    assert check_pass(item, graph) == 1

    changed = PassManager([item]).run(graph).graph
    assert [origin.name for origin in changed.value("mul").origins] == ["neg"]


class Broken(Pass):
    """Breaks a promise; each of its subclasses another one."""

    name = "broken"
    is_idempotent = True


class SaysNothing(Broken):
    def run(self, graph: Graph) -> bool:
        ClampSums().run(graph)
        return False


class EditsBehindTheGraph(Broken):
    def run(self, graph: Graph) -> bool:
        (node, *_) = graph.nodes
        node._attrs["alpha"] = 3
        return True


class LeavesAWrongGraph(Broken):
    def run(self, graph: Graph) -> bool:
        if not pairs(graph):
            return False
        ((_, relu),) = pairs(graph)
        made = graph.insert("aten.add.Tensor", [], {}, types=relu.outputs[0].type, before=relu)
        graph.replace_all_uses(relu.outputs[0], made.outputs[0])
        return True


class LeavesAGraphThatCannotRun(Broken):
    def run(self, graph: Graph) -> bool:
        ((_, relu),) = pairs(graph)
        with self.rewrite(graph, "lose", relu) as edit:
            edit.replace(relu.outputs[0], edit.call("no.such.op", relu.inputs[0], type=relu.outputs[0].type))
        return True


class ScalesOnTheWay(Broken):
    """Take a factor out of a sum, and put it back behind the next node: the sum is another one then."""

    numerics: ClassVar[Numerics] = within(1e-5)

    def run(self, graph: Graph) -> bool:
        found = [(add, relu) for add, relu in pairs(graph) if "#" not in relu.name]
        for add, relu in found:
            with self.rewrite(graph, "scale", add, relu) as edit:
                total = edit.call("aten.mul.Tensor", add.outputs[0], 4.0)
                made = edit.call("aten.relu.default", total, name="relu")
                edit.replace(relu.outputs[0], edit.call("aten.mul.Tensor", made, 0.25))
                edit.graph.add_origins(total, add.outputs[0])
        return bool(found)


class IsNeverDone(Broken):
    def run(self, graph: Graph) -> bool:
        (last,) = list(graph.nodes)[-1:]
        graph.insert(
            last.op_type, last.inputs, last.attrs, types=last.outputs[0].type, provenance=last.provenance
        )
        return True


def test_a_pass_that_is_not_idempotent_may_say_so() -> None:
    class Grow(IsNeverDone):
        is_idempotent = False

    assert check_pass(Grow, relu_of_sum()) == 1


class ForgetsWhereNodesAreFrom(Broken):
    def run(self, graph: Graph) -> bool:
        found = pairs(graph)
        for _, relu in found:
            made = graph.insert(
                "aten.clamp_min.default",
                relu.inputs,
                {"min": 0},
                types=relu.outputs[0].type,
                operands=["self"],
                before=relu,
            )
            graph.replace_all_uses(relu.outputs[0], made.outputs[0])
            graph.erase(relu)
        return bool(found)


class ForgetsWhatWasFused(Broken):
    def run(self, graph: Graph) -> bool:
        found = pairs(graph)
        for add, relu in found:
            with self.rewrite(graph, "clamp", add, relu):
                place = {"before": relu, "provenance": Provenance(source=relu.provenance.source)}
                typed = {"types": relu.outputs[0].type, **place}
                total = graph.insert("aten.add.Tensor", add.inputs, operands=["self", "other"], **typed)
                made = graph.insert("aten.relu.default", total.outputs, operands=["self"], **typed)
                graph.replace_all_uses(relu.outputs[0], made.outputs[0])
        return bool(found)


class WritesIntoConstants(Broken):
    numerics: ClassVar[Numerics] = EXACT

    def run(self, graph: Graph) -> bool:
        for value in graph.constants.values():
            value.argument.data.mul_(-1)
        return False


class HidesAnOption(Broken):
    factor: int = 1

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return 0

    def run(self, graph: Graph) -> bool:
        return False


@each_row("item, message", [
    (SaysNothing, "broken returned False, but the graph is another\n  at: graph 'net'\n  fix: run"),
    (Liar(edits=False, says=True), "liar.* returned True, but the graph is the same\n"),
    (Liar(says=True), "liar.* edits the graph to what it was before\n"),
    (EditsBehindTheGraph, "broken edits the graph by other means than the graph's methods\n"),
    (LeavesAWrongGraph, "broken broke graph 'net': .*aten.add.Tensor"),
    (LeavesAGraphThatCannotRun,
        "broken leaves a graph that cannot be run: there is no operator no.such.op\n"),
    (
        ScalesOnTheWay,
        (
            "broken records a wrong origin of a value: %mul#1 stands for %add, and differs by 3 of "
            "its largest magnitude, .*\n  at: graph 'net'\n"
            "  fix: add new nodes with edit.call to compute something else"
        ),
    ),
    (ReluToGelu,
        "relu-to-gelu changed what the graph computes: result differs by .*\n.*\n  fix: .* are exact, or"),
    (IsNeverDone, "broken changes the graph in a second run, too\n.*\n  fix: do all of it in one"),
    (ForgetsWhereNodesAreFrom,
        "broken gives node 'clamp_min' no provenance\n.*\n  fix: add it with edit.call"),
    (ForgetsWhatWasFused, r"broken does not record that node 'add' was fused \(rewrite 'clamp'\)\n"),
    (HidesAnOption, "HidesAnOption.* differs from its text form: broken\n"),
    (Failing(inside=False), "failing.* failed: ValueError: no luck\n  at: graph 'net'"),
    (Picky(wants="sort"), "picky.* requires a condition that does not hold: no sort in net\n"),
])  # fmt: skip
def test_a_pass_that_breaks_a_promise_is_refused(item: Any, message: str) -> None:
    with pytest.raises(PassError, match=message):
        check_pass(item, relu_of_sum())


def test_a_pass_that_writes_into_data_is_refused() -> None:
    graph = graph_of(lambda x, y: x + torch.tensor([1.0, 2.0, 3.0]))
    assert graph.constants

    with pytest.raises(PassError, match="broken edits the graph by other means than the graph's methods"):
        check_pass(WritesIntoConstants, graph)


def test_what_is_no_pass_cannot_be_checked() -> None:
    with pytest.raises(PassError, match="'cse' is not a pass"):
        check_pass("cse", relu_of_sum())  # type: ignore[arg-type]


def test_a_pass_that_edits_the_graph_of_the_caller_is_refused(subtests: pytest.Subtests) -> None:
    for number in (1, 3):  # the third run is that of the manager, behind two of the check itself
        given, runs = relu_of_sum(), []

        class EditsAnotherGraph(Broken):
            def run(self, graph: Graph) -> bool:
                runs.append(graph)
                if len(runs) == number:
                    given.rename(given.inputs[0], "another")
                return False

        message = "broken changed the graph of the caller\n.*\n  fix: edit nothing but"
        with subtests.test(number=number), pytest.raises(PassError, match=message):
            check_pass(EditsAnotherGraph, given)


@pytest.mark.smoke
def test_a_check_of_nothing_is_refused() -> None:
    with pytest.raises(PassError, match="there is no graph to check clamp-sums on\n  fix: give at least one"):
        check_pass(ClampSums, [])


def test_a_graph_that_cannot_be_run_is_no_fault_of_the_pass() -> None:
    graph = program("""
        input %x: f32[2]
        %y: f32[2] = no.such.op(%x)
        return %y
    """)

    with pytest.raises(PassError, match="the graph cannot be checked, for it fails before any pass"):
        check_pass(ClampSums, graph)
