"""Which backend gets a node: the first that supports it, or the cheapest where costs are stated."""

import itertools
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npu_ir import Graph, OpNode, parse_ir
from npu_runtime import Backend, BackendError
from npu_runtime.backends.partition import partition
from npu_runtime.backends.registry import find_backend, named_backends
from npu_runtime.diagnostics.explain import explain_graph
from npu_runtime.lowering.lowered_graph import lower
from tests.support.backends.broken_backends import Sound

OPS = {"s": "aten.sin.default", "c": "aten.cos.default", "t": "aten.tanh.default"}


class Priced(Sound):
    """States a cost for some ops, takes others at any cost, and refuses the rest."""

    def __init__(self, name: str, costs: dict[str, float | None], call_overhead: float = 0.0) -> None:
        self.name = name  # type: ignore[misc]
        self.costs = {OPS[letter]: cost for letter, cost in costs.items()}
        self.call_overhead = call_overhead  # type: ignore[misc]

    def supports(self, node: OpNode) -> str | None:
        return None if node.op_type in self.costs else "it has no price"

    def cost(self, node: OpNode) -> float | None:
        return self.costs[node.op_type]


def chain(letters: str) -> Graph:
    """Return a graph that calls ``sin``, ``cos`` or ``tanh`` for each letter, one after the other."""
    lines = [
        f"  %v{index + 1}: f32[8] = {OPS[letter]}(self=%v{index})" for index, letter in enumerate(letters)
    ]
    return parse_ir(
        "\n".join(["graph chain {", "  input %v0: f32[8]", *lines, f"  return %v{len(letters)}", "}"])
    )


def split(letters: str, *backends: Backend) -> list[tuple[str, int]]:
    """Return the name of the backend of each partition, and its number of nodes."""
    return [(item.backend.name, len(item.nodes)) for item in partition(chain(letters), backends)]


LAST = Priced("aten", dict.fromkeys("sct", 1e-6))


@pytest.mark.smoke
def test_the_first_backend_that_supports_a_node_takes_it_at_any_cost() -> None:
    free, priced = Priced("free", {"s": None}), Priced("priced", dict.fromkeys("sc", 1e-9))

    assert split("ssct", free, priced, LAST) == [("free", 2), ("priced", 1), ("aten", 1)]
    assert split("s", priced, free, LAST) == [("priced", 1)]  # who states no cost does not compete


def test_a_lone_node_neither_leaves_a_run_nor_splits_one() -> None:
    native = Priced("native", {"s": 1e-7, "c": 2e-6}, call_overhead=5e-6)

    assert split("tst", native, LAST) == [("aten", 3)]
    assert split("s" * 20 + "c" + "s" * 20, native, LAST) == [("native", 41)]
    assert split("s" * 20 + "t" + "s" * 20, native, LAST) == [("native", 20), ("aten", 1), ("native", 20)]


def test_the_reason_states_both_costs() -> None:
    native = Priced("native", {"s": 1e-7, "c": 2e-6}, call_overhead=8.9e-6)
    graph = chain("tst")

    (only,) = partition(graph, [native, LAST])
    (run,) = partition(chain("s" * 10 + "c" + "s" * 10), [native, LAST])

    assert only.refusals[graph.nodes[1]] == {"native": "aten is cheaper: 1 us against 9 us"}
    assert only.refusals[graph.nodes[0]] == {"native": "it has no price"}
    assert only.seconds == pytest.approx(1e-6)
    assert run.refusals[run.nodes[10]] == {"aten": "native is cheaper: 2 us against 9.9 us"}
    assert run.seconds == pytest.approx(20e-7 + 2e-6 + 8.9e-6)


class Free(Priced):
    """Takes ``c`` for free."""

    def is_free(self, node: OpNode) -> bool:
        return node.op_type == OPS["c"]


def test_a_partition_does_not_end_with_what_is_free() -> None:
    native, priced = Free("native", {"s": None, "c": None}), Free("native", {"s": 1e-9, "c": 0.0})

    assert split("cscc", native, LAST) == [("native", 2), ("aten", 2)]
    assert split("ctcc", native, LAST) == [("aten", 4)]
    assert split("scscts", native, LAST) == [("native", 3), ("aten", 2), ("native", 1)]
    assert split("scc", priced, LAST) == [("native", 1), ("aten", 2)]
    (_, rest) = partition(chain("sc"), [native, LAST])
    assert rest.refusals[rest.nodes[0]] == {"native": "a free node at the end of a partition saves nothing"}


class Updating(Priced):
    """Updates in place by ``s``."""

    def updates_in_place(self, node: OpNode) -> bool:
        return node.op_type == OPS["s"]


def test_nodes_that_update_in_place_are_partitions_where_that_is_asked_for() -> None:
    native = Updating("native", {"s": None, "c": None})

    parts = partition(chain("ccsscct"), [native, LAST], split_updates=True)

    assert [len(item.nodes) for item in parts] == [2, 1, 1, 2, 1]
    assert [item.updates_in_place for item in parts] == [False, True, True, False, False]
    assert split("ccsscct", native, LAST) == [("native", 6), ("aten", 1)]


def test_an_answer_about_updates_that_is_no_bool_is_refused() -> None:
    backend = type("Odd", (Sound,), {"updates_in_place": lambda self, node: "yes"})()

    with pytest.raises(BackendError, match="answers 'yes' where it should say whether a node updates in pl"):
        partition(chain("s"), [backend, LAST], split_updates=True)


@pytest.mark.parametrize(("answer", "message"), [
    pytest.param(1, r"answers 1 where it .* is free\n  at: node .*\n  fix: is_free\(\) returns a bool",
        id="1"),
    pytest.param(None, "answers None where", id="none"),
])  # fmt: skip
def test_an_answer_that_is_no_bool_is_refused(answer: Any, message: str) -> None:
    backend = type("Odd", (Sound,), {"is_free": lambda self, node: answer})()

    with pytest.raises(BackendError, match=message):
        partition(chain("s"), [backend, LAST])


def total(letters: str, places: Sequence[int], backends: Sequence[Priced]) -> float:
    entries = [backends[place].call_overhead for place, _ in itertools.groupby(places)]
    return sum(entries) + sum(
        backends[place].costs[OPS[letter]] or 0.0 for letter, place in zip(letters, places, strict=True)
    )


costs = st.sampled_from([1.0, 2.0, 3.5, 7.0])


@given(
    st.text("sct", min_size=1, max_size=6),
    st.lists(st.tuples(st.dictionaries(st.sampled_from("sct"), costs), costs), min_size=1, max_size=2),
)
def test_no_assignment_costs_less(letters: str, offers: list[tuple[dict[str, Any], float]]) -> None:
    backends = [
        *(Priced(f"b{index}", *offer) for index, offer in enumerate(offers)),
        Priced("aten", dict.fromkeys("sct", 2.0)),
    ]
    able = [[place for place, item in enumerate(backends) if OPS[letter] in item.costs] for letter in letters]

    found = partition(chain(letters), backends)

    names = [item.name for item in backends]
    chosen = [names.index(item.backend.name) for item in found for _ in item.nodes]
    best = min(total(letters, places, backends) for places in itertools.product(*able))
    assert all(place in places for place, places in zip(chosen, able, strict=True))
    assert total(letters, chosen, backends) == pytest.approx(best)


def test_aten_states_costs_of_the_right_order_and_is_asked_only_where_somebody_bids() -> None:
    graph = parse_ir("""
    graph g {
      symbol n in [1, inf]
      input %x: f32[512, 512]
      input %o: f32[n]
      %view: f32[262144] = aten.view.default(self=%x, size=(262144,))
      %add: f32[512, 512] = aten.add.Tensor(self=%x, other=%x)
      %mm: f32[512, 512] = aten.mm.default(self=%x, mat2=%x)
      %neg: f32[n] = aten.neg.default(self=%o)
      return (%view, %add, %mm, %neg)
    }
    """)

    view, add, mm, unknown = (find_backend("aten").cost(node) for node in graph.body)

    assert unknown is None
    assert 1e-7 < (view or 0) < 5e-6 < (add or 0) < 1e-3 < (mm or 0) < 2e-2


def test_costs_show_in_the_explanation_and_in_the_lowered_graph() -> None:
    native = Priced("native", {"s": 1e-7}, call_overhead=9e-6)
    graph = chain("tst")

    found, lowered = explain_graph(graph, native), lower(graph, named_backends(native))

    reason = found.nodes[1].reasons["native"]
    assert reason.startswith("aten is cheaper: 1")
    assert f"1 x native: {reason}" in str(lowered)
    assert [item["seconds"] is None for item in lowered.to_dict()["partitions"]] == [False]


@pytest.mark.parametrize(("answer", "message"), [
    pytest.param(-1.0, r"answers -1.0 where it should say what a node costs\n  at: node 'v1'", id="negative"),
    pytest.param("cheap", r"answers 'cheap' .*\n.*\n  fix: cost\(\) returns None or seconds", id="text"),
    pytest.param(float("nan"), "answers nan where", id="nan"),
    pytest.param(float("inf"), "answers inf where", id="infinity"),
    pytest.param(1e308, "answers 1e.308 where", id="sums overflow"),
    pytest.param(10**400, "answers 1000+[.]{3}0+ where", id="no float holds it"),
    pytest.param(ZeroDivisionError("no price"), "raised an error .*: no price", id="error"),
])  # fmt: skip
def test_a_cost_that_is_none_is_refused(answer: Any, message: str) -> None:
    def cost(self: Any, node: OpNode) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    backend = type("Odd", (Sound,), {"cost": cost})()

    with pytest.raises(BackendError, match=message):
        partition(chain("s"), [backend, LAST])


@pytest.mark.parametrize("overhead", [-1.0, float("nan"), float("inf"), 1e308, 10**400, True, None, "1 us"])
def test_an_overhead_that_is_none_is_refused(overhead: Any) -> None:
    backend = type("Odd", (Sound,), {"call_overhead": overhead})()

    with pytest.raises(BackendError, match=r"has call_overhead .*\n  at: class .*Odd\n  fix: .* in seconds"):
        partition(chain("s"), [backend, LAST])
