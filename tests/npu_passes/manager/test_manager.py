"""The manager: rounds, statistics, the journal, dumps, and naming the one at fault."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from npu_ir import Graph, GraphError, Provenance, extract_ir, parse_ir
from npu_passes import Checked, Pass, PassError, PassManager, PassResult, Refusal, Rewrite, bisect, optimize
from npu_passes.testing import check_pass
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


def test_the_new_graph_is_another_one(chain: Graph) -> None:
    result = run(chain, DropAlias)

    assert chain == parse_ir(CHAIN)
    assert [node.name for node in result.graph.nodes] == ["b", "d"]
    result.graph.check()


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


def test_statistics_are_fresh_for_each_run(chain: Graph) -> None:
    manager = PassManager([DropAlias])

    first, second = manager.run(chain), manager.run(chain)

    assert len(first.passes) == len(second.passes) == 1
    assert len(first.journal.rewrites) == len(second.journal.rewrites) == 2


def test_parameters_constants_and_operations_are_counted() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).eval()
    graph = extract_ir(model, (torch.zeros(3, 4),))
    graph.add_constant("c", torch.zeros(5))

    statistics = run(graph).before

    assert statistics.parameters == 4 * 8 + 8 + 8 * 2 + 2
    assert statistics.constant_bytes == 20
    assert statistics.flops == 2 * 3 * (4 * 8 + 8 * 2)
    assert statistics.unknown_flops == 0


def test_operations_of_open_sizes_are_said_to_be_unknown() -> None:
    batch = torch.export.Dim("batch", min=2, max=8)
    graph = extract_ir(nn.Linear(4, 8), (torch.zeros(3, 4),), dynamic_shapes=({0: batch},))

    statistics = run(graph).before

    assert (statistics.flops, statistics.unknown_flops) == (0, 1)


def test_the_journal_says_what_was_rewritten(chain: Graph) -> None:
    journal = run(chain, DropAlias, ReluToClamp).journal

    assert journal.rewrites == [
        Rewrite("drop-alias", "alias", ("a",)),
        Rewrite("drop-alias", "alias", ("c",)),
        Rewrite("relu-to-clamp", "to-clamp", ("b",), ("clamp",)),
        Rewrite("relu-to-clamp", "to-clamp", ("d",), ("clamp#1",)),
    ]
    assert str(journal.rewrites[2]) == "relu-to-clamp: to-clamp: b -> clamp"


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
    class Fuse(Pass):
        """Make one of two."""

        name = "fuse"

        def run(self, graph: Graph) -> bool:
            nodes = graph.nodes
            if len(nodes) < 4:
                return False
            with self.rewrite(graph, "two", nodes[0], nodes[1]) as edit:
                edit.replace(nodes[1].outputs[0], edit.call("aten.relu.default", graph.inputs[0]))
            return True

    chain.set_provenance(chain.node("a"), Provenance("layer1", "model.py:1"))
    chain.set_provenance(chain.node("b"), Provenance("layer2", "model.py:2", ("x", "y")))

    fused = run(chain, Fuse).graph.node("relu")

    assert fused.provenance == Provenance("layer2", "model.py:2", ("a", "x", "y"))


def test_a_bound_that_is_hit_is_reported(chain: Graph) -> None:
    result = PassManager([Restless], max_rounds=3).run(chain)

    assert (result.rounds, result.converged) == (3, False)


def test_passes_that_are_done_are_not_run_again(chain: Graph) -> None:
    result = run(chain, DropAlias, Refusing)

    assert [item.text for item in result.passes] == ["drop-alias", "refusing"]
    assert (result.rounds, result.converged) == (1, True)


def test_passes_run_in_regions_too() -> None:
    class Branches(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.cond(x.sum() > 0, lambda x: x.relu() + 1, lambda x: x.relu() - 1, (x,))

    graph = extract_ir(Branches(), (torch.ones(2, 3),))

    result = run(graph, ReluToClamp, checked=Checked())

    (node,) = [node for node in result.graph.nodes if node.regions]
    assert all(len(list(region.nodes_of("aten.clamp.default"))) == 1 for region in node.regions.values())
    assert len(result.journal.rewrites) == 2


def test_the_journal_says_in_which_region_nodes_are() -> None:
    class Nested(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            def inner(x: torch.Tensor) -> torch.Tensor:
                return torch.cond(x.max() > 0, lambda x: x.relu() + 1, lambda x: x - 1, (x,))

            return torch.cond(x.sum() > 0, inner, lambda x: x.relu() - 1, (x,))

    graph = extract_ir(Nested(), (torch.ones(2, 3),))

    rewritten, refused = run(graph, ReluToClamp).journal, run(graph, Refusing).journal

    paths = ["cond.true_fn/cond.true_fn/relu", "cond.false_fn/relu"]
    assert sorted(path for item in rewritten.rewrites for path in item.paths) == sorted(paths)
    assert sorted(item.path for item in refused.refusals) == sorted(paths)
    (flat,) = [item for item in rewritten.rewrites if item.region == "cond.false_fn"]
    assert str(flat) == "relu-to-clamp: to-clamp: cond.false_fn/relu -> clamp"


def test_a_rewrite_that_fails_says_in_which_region() -> None:
    class Branches(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.cond(x.sum() > 0, lambda x: x.relu() + 1, lambda x: x - 1, (x,))

    graph = extract_ir(Branches(), (torch.ones(2, 3),))
    region = next(node.regions["true_fn"] for node in graph.nodes if node.regions)

    with (
        pytest.raises(PassError, match=r"rule failed: ValueError: no luck\n  at: node 'cond.true_fn/relu'"),
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

    with pytest.raises(PassError, match="the graph cannot be dumped: No space left on device"):
        PassManager([DropAlias], dump_dir=tmp_path).run(chain)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_for_dumps_that_cannot_be_made_is_refused(chain: Graph, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(PassError, match="the graph cannot be dumped"):
        PassManager([DropAlias], dump_dir=tmp_path / "file" / "dumps").run(chain)


def test_what_is_no_graph_is_refused(subtests: pytest.Subtests) -> None:
    rows = {
        "optimize": optimize,
        "manager": PassManager([DropAlias]).run,
        "bisect": (lambda model: bisect(model, [DropAlias])),
        "check_pass": (lambda model: check_pass(DropAlias, [model])),
    }
    for case, call in rows.items():
        with (
            subtests.test(case),
            pytest.raises(PassError, match="(?s)passes run over a graph, not over a Linear.*extract_ir"),
        ):
            call(nn.Linear(1, 1))


def test_data_to_check_on_that_is_none_is_refused() -> None:
    with pytest.raises(PassError, match=r"(?s)checked is the data to check on, not True.*Checked\(\)"):
        PassManager([DropAlias], checked=True)  # type: ignore[arg-type]


def test_a_name_in_place_of_a_pass_is_no_pass_to_check(chain: Graph) -> None:
    with pytest.raises(PassError, match="'cse' is not a pass"):
        check_pass("cse", [chain])  # type: ignore[arg-type]


def test_optimize_runs_the_default_pipeline(chain: Graph) -> None:
    graph = optimize(chain)

    assert [node.op_type for node in graph.nodes] == ["aten.relu.default", "aten.relu.default"]


# Who is at fault


def test_the_rewrite_that_breaks_the_graph_is_named(chain: Graph) -> None:
    with pytest.raises(
        PassError, match=r"(?s)break-shapes broke the graph: .*'nonsense'.*rewrite 'mark' of d"
    ):
        run(chain, DropAlias, BreakShapes)

    assert len(chain) == 4
    chain.check()


def test_a_pass_that_fails_inside_of_a_rewrite_is_named_with_rule_and_nodes(chain: Graph) -> None:
    with pytest.raises(PassError, match=r"(?s)failing: attempt failed: .*cannot stand for.*at: node 'a'"):
        run(chain, Failing)


def test_a_pass_that_fails_outside_of_a_rewrite_is_named(chain: Graph) -> None:
    with pytest.raises(
        PassError, match=r"(?s)failing\{inside=false\} failed: ValueError: no luck.*graph 'chain'"
    ):
        run(chain, Failing(inside=False))


@pytest.mark.parametrize(
    ("item", "message"),
    [
        pytest.param(Liar(), "returned False, but it edited the graph", id="edited"),
        pytest.param(Liar(edits=False, says=True), "returned True, but it changed nothing", id="did nothing"),
    ],
)
def test_a_pass_says_truly_whether_it_edited_the_graph(chain: Graph, item: Pass, message: str) -> None:
    with pytest.raises(PassError, match=message):
        run(chain, item)


def test_a_pass_returns_a_bool(chain: Graph) -> None:
    class Mute(Pass):
        """Say nothing."""

        name = "mute"

        def run(self, graph: Graph) -> bool:
            return None  # type: ignore[return-value]

    with pytest.raises(PassError, match="mute returned None"):
        run(chain, Mute)


def test_what_a_pass_requires_must_hold(chain: Graph) -> None:
    with pytest.raises(PassError, match="requires a condition that does not hold: no sort in chain"):
        run(chain, Picky(wants="sort"))


def test_what_a_pass_ensures_must_hold(chain: Graph) -> None:
    with pytest.raises(PassError, match="ensures a condition that does not hold: a loop is left"):
        run(chain, Picky(promises="loop"))


def test_a_graph_that_is_broken_before_is_no_fault_of_a_pass(chain: Graph) -> None:
    chain.set_attrs(chain.node("b"), {"nonsense": 1})

    with pytest.raises(GraphError, match="has no argument 'nonsense'"):
        run(chain, DropAlias)


def test_a_rewrite_that_fails_is_reported_though_the_pass_goes_on(chain: Graph) -> None:
    class Stubborn(Failing):
        """Fail, and say that all is well."""

        name = "stubborn"

        def run(self, graph: Graph) -> bool:
            with contextlib.suppress(PassError):
                super().run(graph)
            return True

    with pytest.raises(PassError, match="stubborn: attempt failed"):
        run(chain, Stubborn)


def test_an_abandoned_rewrite_does_not_keep_others_from_beginning(chain: Graph) -> None:
    class Generating(DropAlias):
        """Begin a rewrite in a generator that is left."""

        name = "generating"

        def run(self, graph: Graph) -> bool:
            def begun() -> Iterator[None]:
                with self.rewrite(graph, "left", graph.nodes[0]):
                    yield

            for _ in begun():
                break
            return super().run(graph)

    assert run(chain, Generating).after.nodes == 2


def test_a_rewrite_that_changed_nothing_is_no_rewrite(chain: Graph) -> None:
    class Undecided(Pass):
        """Begin rewrites and leave them."""

        name = "undecided"

        def run(self, graph: Graph) -> bool:
            for node in graph.nodes:
                with self.rewrite(graph, "maybe", node):
                    pass
            return False

    assert run(chain, Undecided).journal.rewrites == []


def test_edits_between_rewrites_are_entries_of_their_own(chain: Graph) -> None:
    class Mixed(Pass):
        """Edit with and without saying so."""

        name = "mixed"

        def run(self, graph: Graph) -> bool:
            if "a" not in {node.name for node in graph.nodes}:
                return False
            graph.rename(graph.value("b"), "renamed")
            with self.rewrite(graph, "alias", graph.node("a")) as edit:
                edit.replace(graph.value("a"), graph.inputs[0])
            graph.rename(graph.value("d"), "renamed")
            return True

    assert [item.rule for item in run(chain, Mixed).journal.rewrites] == ["run", "alias", "run"]


def test_what_a_pass_refuses_names_the_pass(chain: Graph) -> None:
    class Strict(Pass):
        """Refuse every graph."""

        name = "strict"

        def run(self, graph: Graph) -> bool:
            raise PassError(
                "this is no graph for me", where=f"node {graph.nodes[0].name!r}", fix="another one"
            )

    with pytest.raises(
        PassError, match=r"^strict failed: this is no graph for me\s+at: node 'a'\s+fix: another one$"
    ):
        run(chain, Strict)


def test_a_pass_that_writes_into_a_constant_is_named(chain: Graph) -> None:
    class Doubling(Pass):
        """Double constants in place."""

        name = "doubling"

        def run(self, graph: Graph) -> bool:
            for value in graph.constants.values():
                value.argument.data.mul_(2)  # type: ignore[union-attr]
            return False

    chain.add_constant("c", torch.ones(2))

    with pytest.raises(PassError, match="doubling wrote into the data of a constant"):
        run(chain, Doubling)


@pytest.mark.parametrize("hook", ["requires", "ensures"])
def test_a_pass_that_fails_while_it_looks_at_the_graph_is_named(chain: Graph, hook: str) -> None:
    def look(self: Pass, graph: Graph) -> str | None:
        raise KeyError("missing")

    fields = {"name": "looking", "__doc__": "Look.", "run": lambda self, graph: False, hook: look}

    with pytest.raises(PassError, match=r"(?s)looking failed: KeyError: 'missing'.*graph 'chain'"):
        run(chain, type("Looking", (Pass,), fields))


def test_what_a_graph_lacks_is_said_in_words(chain: Graph) -> None:
    fields = {"name": "terse", "__doc__": "x", "run": lambda self, graph: False}
    fields["requires"] = lambda self, graph: True

    with pytest.raises(PassError, match=r"(?s)terse.requires\(graph\) returned True.*in words, or None"):
        run(chain, type("Terse", (Pass,), fields))


# Checked mode


def test_checked_mode_finds_what_was_done_behind_the_graphs_back() -> None:
    class Sneaky(Pass):
        """Change a list that an attribute holds."""

        name = "sneaky"

        def run(self, graph: Graph) -> bool:
            next(graph.nodes_of("aten.sum.dim_IntList")).attrs["dim"][0] = 1
            return False

    class Sum(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.sum([0])

    graph = extract_ir(Sum(), (torch.ones(3, 3),))

    with pytest.raises(PassError, match="sneaky changed what graph"):
        run(graph, Sneaky, checked=Checked())


def test_checked_mode_finds_a_pass_that_changes_results(chain: Graph) -> None:
    with pytest.raises(
        PassError, match=r"relu-to-gelu changed what graph 'chain' computes: result differs by"
    ):
        run(chain, DropAlias, ReluToGelu, checked=Checked())


def test_checked_mode_lets_a_pass_do_what_its_numerics_allow(chain: Graph) -> None:
    assert run(chain, Nudge, checked=Checked()).after.nodes == 6

    with pytest.raises(PassError, match=r"(?s)nudge\{factor=1.01\} changed.*within 0.001"):
        run(chain, Nudge(factor=1.01), checked=Checked())


def test_checked_mode_compares_updates() -> None:
    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("total", torch.zeros(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.total.add_(x.relu().sum(0))
            return x + 1

    graph = extract_ir(Counter(), (torch.ones(2, 3),))

    with pytest.raises(PassError, match="the update of total differs"):
        run(graph, ReluToGelu, checked=Checked())


def test_checked_mode_takes_weights_and_calls() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU())
    x = -torch.ones(3, 4)
    graph = extract_ir(model, (x,))
    weights = {"0.weight": torch.zeros(8, 4), "0.bias": torch.zeros(8)}

    # gelu(0) is relu(0): nothing differs on these weights
    result = run(graph, ReluToGelu, checked=Checked(weights=weights, calls=[((x,), {})]))

    assert [node.op_type for node in result.graph.nodes] == ["aten.linear.default", "aten.gelu.default"]


def test_checked_mode_chooses_open_sizes() -> None:
    batch = torch.export.Dim("batch", min=2, max=8)
    graph = extract_ir(nn.ReLU(), (torch.zeros(3, 4),), dynamic_shapes=({0: batch},))

    with pytest.raises(PassError, match="relu-to-gelu changed"):
        run(graph, ReluToGelu, checked=Checked(sizes={"batch": 5}))


def test_a_graph_that_does_not_run_on_random_data_cannot_be_checked() -> None:
    class Inverse(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.linalg.cholesky(x)

    graph = extract_ir(Inverse(), (torch.eye(3),))

    with pytest.raises(PassError, match="(?s)cannot be checked, for it fails before any pass.*Checked"):
        run(graph, DropAlias, checked=Checked())


def test_random_ops_draw_the_same_numbers_before_and_after() -> None:
    model = nn.Sequential(nn.Dropout(), nn.ReLU()).train()
    graph = extract_ir(model, (torch.ones(50, 3),))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = run(graph, ReluToClamp, checked=Checked())

    assert result.after.nodes == 2
