"""The order of passes and pipelines: given, constrained, never that of installation."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import pytest

from npu_ir import Graph
from npu_ir.plugins import plugin_manager
from npu_passes import Pass, PassError, PassManager, Pipeline, all_pipelines, optimize, passes_of
from tests.support.passes.plugins import Install, point


def make(name: str, **fields: object) -> type[Pass]:
    def run(self: Pass, graph: Graph) -> bool:
        return False

    return type(
        name.title().replace("-", ""), (Pass,), {"name": name, "run": run, "__doc__": "Do.", **fields}
    )


def names(manager: PassManager) -> list[str]:
    return [item.name for item in manager.passes]


def test_passes_run_in_the_order_given() -> None:
    manager = PassManager([make("c"), make("a"), make("b")])

    assert names(manager) == ["c", "a", "b"]


def test_before_and_after_move_passes_no_further_than_they_must() -> None:
    first, second, third = make("a", after=("c",)), make("b"), make("c", before=("b",))

    assert names(PassManager([first, second, third])) == ["c", "a", "b"]


def test_constraints_on_passes_that_are_not_there_do_not_count() -> None:
    assert names(PassManager([make("a", after=("zzz",)), make("b", before=("yyy",))])) == ["a", "b"]


def test_a_pass_may_be_there_twice() -> None:
    twice = make("a")

    assert names(PassManager([twice, make("b"), twice])) == ["a", "b", "a"]


def test_constraints_that_contradict_each_other_are_refused_with_the_cycle() -> None:
    passes = [make("a", after=("c",)), make("b", after=("a",)), make("c", after=("b",)), make("d")]

    with pytest.raises(PassError, match="the passes a -> b -> c -> a must each run before the next"):
        PassManager(passes)


def test_what_is_no_pass_is_refused() -> None:
    with pytest.raises(PassError, match="3 is not a pass"):
        PassManager([3])  # type: ignore[list-item]


def test_less_than_one_round_is_refused(subtests: pytest.Subtests) -> None:
    for rounds in [0, -1, 1.5, True]:
        with (
            subtests.test(rounds=rounds),
            pytest.raises(PassError, match=f"at least one round, not in {rounds}"),
        ):
            PassManager([], max_rounds=rounds)


def test_a_pipeline_goes_by_its_name() -> None:
    with pytest.raises(PassError, match=r"(?s)a pipeline is given by its name, not \['cse'\].*PassManager"):
        optimize(Graph(), ["cse"])  # type: ignore[arg-type]


def test_passes_and_pipelines_that_are_mixed_up_are_told_apart() -> None:
    with pytest.raises(
        PassError, match=r"(?s)no pass 'default'.*it is a pipeline: PassManager.of_pipeline\('default'\)"
    ):
        PassManager(["default"])
    with pytest.raises(
        PassError, match=r"(?s)no pipeline 'cse'.*it is a pass: PassManager\('cse'\), or --passes cse"
    ):
        passes_of("cse")


def test_text_alone_is_taken_for_a_list_of_passes(install: Install) -> None:
    install(point("plugin", [make("a"), make("b")]))

    assert names(PassManager("b,a")) == ["b", "a"]


def test_a_pass_joins_the_pipelines_that_it_names(install: Install) -> None:
    own, joins = make("own"), make("joins", pipelines=("mine",), before=("own",))
    install(point("one", [own], [Pipeline("mine", "own")]), point("two", [joins]))

    assert [item.name for item in passes_of("mine")] == ["joins", "own"]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param({"before": ("a",)}, "joins,a,b,c", id="in front of all"),
        pytest.param({"after": ("a",), "before": ("b",)}, "a,joins,b,c", id="between two"),
        pytest.param({"after": ("a",)}, "a,b,c,joins", id="as far behind as it can"),
    ],
)
def test_a_pass_that_joins_stands_where_its_constraints_say(
    fields: dict[str, Any], expected: str, install: Install
) -> None:
    pipes = point("pipes", [make("a"), make("b"), make("c")], [Pipeline("mine", "a,b,c")])
    install(pipes, point("one", [make("joins", pipelines=("mine",), **fields)]))

    assert ",".join(item.name for item in passes_of("mine")) == expected


def test_a_pass_that_joins_does_not_reorder_the_passes_of_the_pipeline(install: Install) -> None:
    pipes = point("pipes", [make("a"), make("b")], [Pipeline("mine", "a,b")])
    install(pipes, point("one", [make("joins", pipelines=("mine",), after=("b",), before=("a",))]))

    with pytest.raises(
        PassError,
        match=(
            r"(?s)^joins cannot join the pipeline 'mine', whose .* run as a,b: .*\n"
            r"  at: one \(one-dist 1.0\)\n.*NPU_DISABLE_PLUGINS=one;"
        ),
    ):
        passes_of("mine")


def test_passes_that_join_do_not_reorder_the_passes_of_the_pipeline_together(install: Install) -> None:
    pipes = point("pipes", [make("a"), make("b")], [Pipeline("mine", "a,b")])
    first = make("first", pipelines=("mine",), after=("b",), before=("second",))
    second = make("second", pipelines=("mine",), before=("a",))
    install(pipes, point("one", [first, second]))

    with pytest.raises(PassError, match="first, second cannot join the pipeline 'mine'"):
        passes_of("mine")


def test_the_order_of_a_pipeline_is_not_that_of_installation(install: Install) -> None:
    points = [point(name, [make(f"pass-{name}", pipelines=("empty",))]) for name in "zya"]
    points.append(point("pipes", (), [Pipeline("empty", "")]))

    orders = set()
    for order in itertools.permutations(points):
        install(*order)
        orders.add(tuple(item.name for item in passes_of("empty")))

    assert orders == {("pass-a", "pass-y", "pass-z")}


def test_a_pipeline_that_is_not_there_is_refused() -> None:
    with pytest.raises(PassError, match="(?s)there is no pipeline 'defalt'.*did you mean 'default'"):
        passes_of("defalt")


def test_two_pipelines_of_one_name_are_refused_with_both_distributions(install: Install) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        install(point("one", (), [Pipeline("mine", "")]), point("two", (), [Pipeline("mine", "")]))

    assert "two (two-dist 1.0) offers pipelines called 'mine', and so does one (one-dist 1.0)" in str(
        caught[0].message
    )
    assert "mine" in all_pipelines()


def test_two_passes_of_one_name_are_refused_with_both_distributions(install: Install) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        install(point("mine", [make("dead-code")]))

    (message,) = [str(item.message) for item in caught]
    assert (
        "mine (mine-dist 1.0) offers passes called 'dead-code', and so does npu-passes (npu-passes" in message
    )


@pytest.mark.parametrize("name", ["a-plugin", "npu-passes"])
def test_a_plugin_whose_name_comes_first_takes_nothing_of_ours_away(name: str, install: Install) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        install(point(name, [make("dead-code")], [Pipeline("default", "dead-code")]))

    (message,) = [str(item.message) for item in caught]
    assert f"plugin {name!r} ({name}-dist 1.0) was refused" in message
    assert len(passes_of("default")) > 1


def test_our_passes_come_through_the_entry_point_of_plugins() -> None:
    (report,) = [item for item in plugin_manager.get_plugins().reports if item.name == "npu-passes"]

    assert {"canonicalize", "conv-bn-folding", "dead-code"} <= set(report.offers["passes"])
    assert {"minimal", "default"} <= set(report.offers["pipelines"])


def test_every_pass_of_our_pipelines_is_there(subtests: pytest.Subtests) -> None:
    for pipeline in ["minimal", "default", "fuse"]:
        with subtests.test(pipeline=pipeline):
            assert len(passes_of(pipeline)) >= 4
