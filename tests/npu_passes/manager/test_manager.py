"""The manager: rounds, statistics, the journal, dumps, and naming the one at fault."""

import contextlib
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from npu_ir import Graph, GraphError, Provenance, extract_ir, parse_ir
from npu_passes import Checked, Pass, PassError, PassManager, PassResult, Refusal, Rewrite, bisect, optimize
from npu_passes.testing import check_pass
from tests.support.corpus.case import Function, Holding
from tests.support.passes.sample_passes import (
    BreakShapes,
    DropAlias,
    Failing,
    Liar,
    Nudge,
    Picky,
    Refusing,
    ReluToClamp,
    ReluToGelu,
    Restless,
    UnmarkedDropAlias,
)
from tests.support.rows import each_row

CHAIN = """graph chain {
  input %x: f32[2, 3]
  call (%x)

  %a: f32[2, 3] = aten.alias.default(self=%x)
  %b: f32[2, 3] = aten.relu.default(self=%a)
  %c: f32[2, 3] = aten.alias.default(self=%b)
  %d: f32[2, 3] = aten.relu.default(self=%c)

  return %d
}
"""


@pytest.fixture
def chain() -> Graph:
    return parse_ir(CHAIN)


def run(graph: Graph, *passes: Pass | type[Pass], checked: Checked | None = None) -> PassResult:
    return PassManager(passes, checked=checked).run(graph)


@pytest.mark.smoke
def test_statistics_count_what_was_there_and_what_is_left(chain: Graph) -> None:
    result = run(chain, DropAlias, ReluToClamp)

    assert (result.before.nodes, result.after.nodes) == (4, 2)
    assert [(item.text, item.round, item.rewrites) for item in result.passes] == [
        ("drop-alias", 1, 2),
        ("relu-to-clamp", 1, 2),
        ("drop-alias", 2, 0),
    ]
    assert [(item.before.nodes, item.after.nodes) for item in result.passes] == [(4, 2), (2, 2), (2, 2)]
    assert 0 < result.seconds < 60


def test_parameters_constants_and_operations_are_counted() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).eval()
    graph = extract_ir(model, (torch.zeros(3, 4),))
    graph.add_constant("c", torch.zeros(5))

    statistics = run(graph).before

    assert statistics.parameters == 4 * 8 + 8 + 8 * 2 + 2
    assert statistics.constant_bytes == 20
    assert statistics.flops == 2 * 3 * (4 * 8 + 8 * 2)
    assert statistics.unknown_flops == 0


def test_the_journal_says_what_was_rewritten(chain: Graph) -> None:
    rewrites = run(chain, DropAlias, ReluToClamp).journal.rewrites

    assert rewrites == [
        Rewrite("drop-alias", "alias", ("a",)),
        Rewrite("drop-alias", "alias", ("c",)),
        Rewrite("relu-to-clamp", "to-clamp", ("b",), ("clamp",)),
        Rewrite("relu-to-clamp", "to-clamp", ("d",), ("clamp#1",)),
    ]
    assert str(rewrites[2]) == "relu-to-clamp: to-clamp: b -> clamp"


def pass_that(run: Callable[[Pass, Graph], Any], **fields: Any) -> type[Pass]:
    """Return a pass that does what a function does."""
    return type("Sample", (Pass,), {"name": "sample", "__doc__": "Sample.", "run": run, **fields})


def test_a_pass_that_does_not_say_what_it_rewrites_is_one_entry(chain: Graph) -> None:
    assert run(chain, UnmarkedDropAlias).journal.rewrites == [Rewrite("unmarked-drop-alias", "run", ())]


def test_refusals_are_said_once_with_their_reason(chain: Graph) -> None:
    journal = run(chain, Refusing, DropAlias).journal

    assert journal.refusals == (
        Refusal("refusing", "drop", "b", "it is too nice"),
        Refusal("refusing", "drop", "d", "it is too nice"),
    )
    assert str(journal.refusals[0]) == "refusing: b: it is too nice"


def test_a_refusal_is_forgotten_when_the_pass_does_not_say_it_again(chain: Graph) -> None:
    assert run(chain, Refusing, ReluToClamp).journal.refusals == ()


def test_a_fused_node_carries_the_names_of_all_and_the_place_of_the_last(chain: Graph) -> None:
    def fuse(self: Pass, graph: Graph) -> bool:
        nodes = graph.nodes
        if len(nodes) < 4:
            return False
        with self.rewrite(graph, "two", nodes[0], nodes[1]) as edit:
            edit.replace(nodes[1].outputs[0], edit.call("aten.relu.default", graph.inputs[0]))
        return True

    chain.set_provenance(chain.node("a"), Provenance("layer1", "model.py:1"))
    chain.set_provenance(chain.node("b"), Provenance("layer2", "model.py:2", ("x", "y")))

    fused = run(chain, pass_that(fuse)).graph.node("relu")

    assert fused.provenance == Provenance("layer2", "model.py:2", ("a", "x", "y"))


def test_a_bound_that_is_hit_is_reported(chain: Graph) -> None:
    result = PassManager([Restless], max_rounds=3).run(chain)

    assert (result.rounds, result.converged) == (3, False)


def test_passes_that_are_done_are_not_run_again(chain: Graph) -> None:
    result = run(chain, DropAlias, Refusing)

    assert [item.text for item in result.passes] == ["drop-alias", "refusing"]
    assert (result.rounds, result.converged) == (1, True)


def nested_branches() -> Graph:
    def inner(x: Tensor) -> Tensor:
        return torch.cond(x.max() > 0, lambda x: x.relu() + 1, lambda x: x - 1, (x,))

    def outer(x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, inner, lambda x: x.relu() - 1, (x,))

    return extract_ir(Function(outer), (torch.ones(2, 3),))


def test_passes_run_in_regions_and_the_journal_says_in_which() -> None:
    rewritten = run(nested_branches(), ReluToClamp, checked=Checked()).journal.rewrites
    refused = run(nested_branches(), Refusing).journal.refusals

    paths = ["cond.true_fn/cond.true_fn/relu", "cond.false_fn/relu"]
    assert sorted(path for item in rewritten for path in item.paths) == sorted(paths)
    assert sorted(item.path for item in refused) == sorted(paths)
    (flat,) = [item for item in rewritten if item.region == "cond.false_fn"]
    assert str(flat) == "relu-to-clamp: to-clamp: cond.false_fn/relu -> clamp"


def test_a_rewrite_that_fails_says_in_which_region() -> None:
    region = next(node.regions["false_fn"] for node in nested_branches().nodes if node.regions)

    with (
        pytest.raises(PassError, match=r"rule failed: ValueError: no luck\n  at: node 'cond.false_fn/relu'"),
        DropAlias().rewrite(region, "rule", region.node("relu")),
    ):
        raise ValueError("no luck")


def test_dumps_show_the_graph_behind_each_pass_that_changed_it(chain: Graph, tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "dumps"

    PassManager([DropAlias, Refusing, ReluToClamp], dump_dir=folder).run(chain)

    assert sorted(path.name for path in folder.iterdir()) == [
        "00-input.ir",
        "01-drop-alias.ir",
        "02-relu-to-clamp.ir",
    ]
    assert parse_ir((folder / "00-input.ir").read_text()) == chain
    assert "alias" not in (folder / "01-drop-alias.ir").read_text()


def test_dumps_of_another_run_are_not_mixed_in(chain: Graph, tmp_path: Path) -> None:
    PassManager([DropAlias], dump_dir=tmp_path).run(chain)

    with pytest.raises(PassError, match="the folder holds dumps already"):
        PassManager([DropAlias], dump_dir=tmp_path).run(chain)


def test_a_dump_is_written_in_full_or_not_at_all(
    chain: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)

    with pytest.raises(PassError, match="the graph cannot be written: No space left on device"):
        PassManager([DropAlias], dump_dir=tmp_path).run(chain)
    assert list(tmp_path.iterdir()) == []


@each_row("call", {
    "optimize": optimize,
    "manager": PassManager([DropAlias]).run,
    "bisect": (lambda model: bisect(model, [DropAlias])),
    "check_pass": (lambda model: check_pass(DropAlias, [model])),
})  # fmt: skip
def test_what_is_no_graph_is_refused(call: Any) -> None:
    with pytest.raises(GraphError, match=r"expected a graph, got Linear\n  fix: extract_ir"):
        call(nn.Linear(1, 1))


def test_data_to_check_on_that_is_none_is_refused() -> None:
    with pytest.raises(PassError, match=r"(?s)checked is the data to check on, not True.*Checked\(\)"):
        PassManager([DropAlias], checked=True)  # type: ignore[arg-type]


def goes_on(self: Pass, graph: Graph) -> bool:
    with contextlib.suppress(PassError), self.rewrite(graph, "attempt", graph.nodes[0]):
        raise ValueError("no luck")
    return True


def refuses_the_graph(self: Pass, graph: Graph) -> bool:
    raise PassError("this is no graph for me", where=f"node {graph.nodes[0].name!r}", fix="another one")


def doubles_constants(self: Pass, graph: Graph) -> bool:
    for value in graph.constants.values():
        value.argument.data.mul_(2)  # type: ignore[union-attr]
    return False


def does_nothing(self: Pass, graph: Graph) -> bool:
    return False


def looks(self: Pass, graph: Graph) -> str | None:
    raise KeyError("missing")


@each_row("item, message", [
    (BreakShapes(), r"(?s)break-shapes broke the graph: .*'nonsense'.*rewrite 'mark' of d"),
    (Failing(), r"(?s)failing: attempt failed: .*cannot stand for.*at: node 'a'"),
    (Failing(inside=False), r"(?s)failing\{inside=false\} failed: ValueError: no luck.*graph 'chain'"),
    (Liar(), "returned False, but it edited the graph"),
    (Liar(edits=False, says=True), "returned True, but it changed nothing"),
    (pass_that(lambda self, graph: None), "sample returned None"),
    (pass_that(goes_on), "sample: attempt failed"),
    (pass_that(refuses_the_graph),
        r"^sample failed: this is no graph for me\s+at: node 'a'\s+fix: another one$"),
    (pass_that(doubles_constants), "sample wrote into the data of a constant"),
    (Picky(wants="sort"), "requires a condition that does not hold: no sort in chain"),
    (Picky(promises="loop"), "ensures a condition that does not hold: a loop is left"),
    (pass_that(does_nothing, requires=looks), r"(?s)sample failed: KeyError: 'missing'.*graph 'chain'"),
    (pass_that(does_nothing, ensures=looks), r"(?s)sample failed: KeyError: 'missing'.*graph 'chain'"),
    (pass_that(does_nothing, requires=lambda self, graph: True),
        r"(?s)sample.requires\(graph\) returned True.*in words, or None"),
])  # fmt: skip
def test_a_pass_that_breaks_a_rule_is_named(item: Any, message: Any) -> None:
    graph = parse_ir(CHAIN)
    graph.add_constant("c", torch.ones(2))

    with pytest.raises(PassError, match=message):
        run(graph, item)

    graph.check()


def test_the_pass_that_broke_the_graph_is_named_where_others_follow_or_fail(
    chain: Graph,
) -> None:
    with pytest.raises(PassError, match="break-shapes broke the graph: .*'nonsense'"):
        run(chain, BreakShapes(), Failing(inside=False))

    with pytest.raises(PassError, match="break-shapes broke the graph: .*'nonsense'"):
        PassManager([BreakShapes(), DropAlias]).optimize(chain)


def test_a_failure_that_does_not_come_again_is_raised(chain: Graph) -> None:
    runs: list[Graph] = []

    def fails_once(self: Pass, graph: Graph) -> bool:
        runs.append(graph)
        if len(runs) == 1:
            raise PassError("sample has no luck")
        return False

    with pytest.raises(PassError, match="sample has no luck"):
        run(chain, pass_that(fails_once))
    assert len(runs) == 2


def test_to_optimize_makes_the_same_graph_and_counts_nothing(
    chain: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = run(chain, DropAlias, ReluToClamp).graph
    monkeypatch.setattr("npu_passes.manager.manager.graph_statistics", None)  # a call of it would fail

    found = PassManager([DropAlias, ReluToClamp]).optimize(chain)

    assert found == expected


def test_a_graph_that_is_broken_before_is_no_fault_of_a_pass(chain: Graph) -> None:
    chain.set_attrs(chain.node("b"), {"nonsense": 1})

    with pytest.raises(GraphError, match="has no argument 'nonsense'"):
        run(chain, DropAlias)


def test_only_rewrites_that_are_made_are_entries_and_other_edits_are_their_own(
    chain: Graph, subtests: pytest.Subtests
) -> None:
    def decides_nothing(self: Pass, graph: Graph) -> bool:
        for node in graph.nodes:
            with self.rewrite(graph, "maybe", node):
                pass
        return False

    def abandons_one(self: Pass, graph: Graph) -> bool:
        def begun() -> Iterator[None]:
            with self.rewrite(graph, "left", graph.nodes[0]):
                yield

        next(begun())
        return DropAlias().run(graph)

    def mixes(self: Pass, graph: Graph) -> bool:
        if "a" not in {node.name for node in graph.nodes}:
            return False
        graph.rename(graph.value("b"), "renamed")
        with self.rewrite(graph, "alias", graph.node("a")) as edit:
            edit.replace(graph.value("a"), graph.inputs[0])
        graph.rename(graph.value("d"), "renamed")
        return True

    rows = {decides_nothing: [], abandons_one: ["alias", "alias"], mixes: ["run", "alias", "run"]}
    for function, rules in rows.items():
        with subtests.test(function.__name__):
            result = run(chain, pass_that(function))

            assert [item.rule for item in result.journal.rewrites] == rules


def test_checked_mode_names_a_pass_that_changes_what_a_graph_computes(subtests: pytest.Subtests) -> None:
    def turns_a_sum(self: Pass, graph: Graph) -> bool:
        next(graph.nodes_of("aten.sum.dim_IntList")).attrs["dim"][0] = 1  # type: ignore[index]
        return False

    def counts(self: Any, x: Tensor) -> Tensor:
        self.total.add_(x.relu().sum(0))
        return x + 1

    summing = extract_ir(Function(lambda x: x.sum([0])), (torch.ones(3, 3),))
    counting = extract_ir(Holding(counts, total=torch.zeros(3)), (torch.ones(2, 3),))
    batch = torch.export.Dim("batch", min=2, max=8)
    open_batch = extract_ir(nn.ReLU(), (torch.zeros(3, 4),), dynamic_shapes=({0: batch},))
    rows = [
        (summing, pass_that(turns_a_sum), Checked(), "sample changed what graph"),
        (counting, ReluToGelu, Checked(), "the update of total differs"),
        (open_batch, ReluToGelu, Checked(sizes={"batch": 5}),
            "relu-to-gelu changed what graph 'ReLU' computes: result differs by"),
    ]  # fmt: skip
    for graph, item, checked, message in rows:
        with subtests.test(message), pytest.raises(PassError, match=message):
            run(graph, item, checked=checked)


def test_a_graph_that_does_not_run_on_random_data_cannot_be_checked() -> None:
    graph = extract_ir(Function(torch.linalg.cholesky), (torch.eye(3),))

    with pytest.raises(PassError, match="(?s)cannot be checked, for it fails before any pass.*Checked"):
        run(graph, DropAlias, checked=Checked())


def test_random_ops_draw_the_same_numbers_before_and_after() -> None:
    graph = extract_ir(nn.Sequential(nn.Dropout(), nn.ReLU()).train(), (torch.ones(50, 3),))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert run(graph, ReluToClamp, checked=Checked()).after.nodes == 2


def test_checked_mode_lets_a_pass_do_what_its_numerics_allow(chain: Graph) -> None:
    assert run(chain, Nudge, checked=Checked()).after.nodes == 6

    with pytest.raises(PassError, match=r"(?s)nudge\{factor=1.01\} changed.*within 0.001"):
        run(chain, Nudge(factor=1.01), checked=Checked())


def test_a_result_and_a_journal_are_shown_in_a_line(chain: Graph) -> None:
    result = run(chain, DropAlias, ReluToClamp)

    assert repr(result) == "<PassResult 'chain': 4 -> 2 nodes, 4 rewrites in 3 runs of passes>"
    assert "_refusals" not in repr(result.journal)
