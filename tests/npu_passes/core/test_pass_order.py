"""The order of passes and pipelines: given, constrained, never that of installation."""

import itertools
from collections.abc import Iterable
from typing import Any

import pytest

from npu_ir import Graph
from npu_passes import Pass, PassError, PassManager, Pipeline, find_pass, optimize, passes_of
from tests.support.passes.plugins import Install, point
from tests.support.rows import each_row


def make(name: str, **fields: object) -> type[Pass]:
    def run(self: Pass, graph: Graph) -> bool:
        return False

    return type(
        name.title().replace("-", ""), (Pass,), {"name": name, "run": run, "__doc__": "Do.", **fields}
    )


def names(passes: Iterable[Pass]) -> str:
    return ",".join(item.name for item in passes)


def test_passes_run_in_the_order_given_as_far_as_constraints_allow(subtests: pytest.Subtests) -> None:
    twice = make("a")
    rows = [
        ([make("c"), make("a"), make("b")], "c,a,b"),
        ([make("a", after=("c",)), make("b"), make("c", before=("b",))], "c,a,b"),
        ([make("a", after=("zzz",)), make("b", before=("yyy",))], "a,b"),
        ([twice, make("b"), twice], "a,b,a"),
    ]
    for passes, order in rows:
        with subtests.test(passes=passes):
            assert names(PassManager(passes).passes) == order


def test_constraints_that_contradict_each_other_are_refused_with_the_cycle() -> None:
    passes = [make("a", after=("c",)), make("b", after=("a",)), make("c", after=("b",)), make("d")]

    with pytest.raises(PassError, match="the passes a -> b -> c -> a must each run before the next"):
        PassManager(passes)


def test_what_is_no_pass_is_refused() -> None:
    with pytest.raises(PassError, match="3 is not a pass"):
        PassManager([3])  # type: ignore[list-item]


@each_row("rounds", [0, -1, 1.5, True])
def test_less_than_one_round_is_refused(rounds: Any) -> None:
    with pytest.raises(PassError, match=f"at least one round, not in {rounds}"):
        PassManager([], max_rounds=rounds)


def test_a_pipeline_goes_by_its_name() -> None:
    with pytest.raises(PassError, match=r"(?s)a pipeline is given by its name, not \['cse'\].*PassManager"):
        passes_of(["cse"])  # type: ignore[arg-type]
    with pytest.raises(PassError, match="passes are named by text, not by list"):
        optimize(Graph(), ["cse"])  # type: ignore[arg-type]


def test_pipelines_and_passes_are_named_alike_everywhere() -> None:
    expected = [item.name for item in PassManager([*passes_of("minimal"), "decompose"]).passes]

    assert [item.name for item in PassManager("minimal,decompose").passes] == expected
    assert optimize(Graph(), "minimal,decompose").nodes == ()


def test_passes_and_pipelines_that_are_mixed_up_are_told_apart() -> None:
    with pytest.raises(PassError, match=r"(?s)'default' is a pipeline, not a pass.*passes_of\('default'\)"):
        find_pass("default")
    with pytest.raises(
        PassError, match=r"(?s)no pipeline 'cse'.*it is a pass: PassManager\('cse'\), or --passes cse"
    ):
        passes_of("cse")
    with pytest.raises(
        PassError, match=r"no pipeline 'cse,dead-code'\n  fix: to run passes, PassManager\('cse,"
    ):
        passes_of("cse,dead-code")


MINE = point("pipes", [make("a"), make("b"), make("c")], [Pipeline("mine", "a,b,c")])


@each_row("order, fields", {
    "joins,a,b,c": {"before": ("a",)},
    "a,joins,b,c": {"after": ("a",), "before": ("b",)},
    "a,b,c,joins": {"after": ("a",)},
}.items())  # fmt: skip
def test_a_pass_that_joins_stands_where_its_constraints_say(
    order: str, fields: Any, install: Install
) -> None:
    install(MINE, point("one", [make("joins", pipelines=("mine",), **fields)]))

    assert names(passes_of("mine")) == order


def test_passes_that_join_do_not_reorder_the_passes_of_the_pipeline(
    install: Install, subtests: pytest.Subtests
) -> None:
    joins = make("joins", pipelines=("mine",), after=("b",), before=("a",))
    first = make("first", pipelines=("mine",), after=("b",), before=("second",))
    second = make("second", pipelines=("mine",), before=("a",))
    rows = [
        (
            [joins],
            r"(?s)^joins cannot join the pipeline 'mine', whose .* a,b,c: .*at: one \(one-dist.*PLUGINS=one;",
        ),
        ([first, second], "first, second cannot join the pipeline 'mine'"),
    ]
    for passes, message in rows:
        install(MINE, point("one", passes))

        with subtests.test(message), pytest.raises(PassError, match=message):
            passes_of("mine")


def test_the_order_of_a_pipeline_is_not_that_of_installation(install: Install) -> None:
    points = [point(name, [make(f"pass-{name}", pipelines=("empty",))]) for name in "zya"]
    points.append(point("pipes", (), [Pipeline("empty", "")]))

    orders = set()
    for order in itertools.permutations(points):
        install(*order)
        orders.add(names(passes_of("empty")))

    assert orders == {"pass-a,pass-y,pass-z"}


def test_a_pipeline_that_is_not_there_is_refused() -> None:
    with pytest.raises(PassError, match="(?s)there is no pipeline 'defalt'.*did you mean 'default'"):
        passes_of("defalt")


def test_a_name_that_is_taken_is_refused_with_both_distributions(
    install: Install, subtests: pytest.Subtests
) -> None:
    dead_code, ours = make("dead-code"), [Pipeline("default", "dead-code")]
    one, two = (point(name, (), [Pipeline("mine", "")]) for name in ("one", "two"))
    rows = [
        ([one, two],
            r"two \(two-dist 1.0\) offers pipelines called 'mine', and so does one \(one-dist 1.0\)"),
        ([point("mine", [dead_code])], "passes called 'dead-code', and so does npu-passes .npu-passes"),
        ([point("a-plugin", [dead_code], ours)], r"plugin 'a-plugin' \(a-plugin-dist 1.0\) was refused"),
        ([point("npu-passes", [dead_code], ours)],
            r"plugin 'npu-passes' \(npu-passes-dist 1.0\) was refused"),
    ]  # fmt: skip
    for points, message in rows:
        with subtests.test(message):
            with pytest.warns(UserWarning, match=message):
                install(*points)

            assert len(passes_of("default")) > 1
