"""Random graphs with symbols and regions come back from every form."""

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from npu_ir import Graph, GraphError, SerializationError, format_ir, load_ir, parse_ir, save_ir
from tests.support.documents import load_changed
from tests.support.random_open_graphs import constants_by_target, open_graphs
from tests.support.tiers import examples

slow = examples(20, suppress_health_check=[*HealthCheck])


def has_ambiguous_constants(graph: Graph) -> bool:
    """Whether two constants share a name, so that a text with hashes in it cannot tell them apart."""
    targets = [target for part in graph.graphs() for target in part.constants]
    return len(set(targets)) < len(targets)


@slow
@given(open_graphs())
def test_every_open_graph_comes_back_from_text_file_and_clone(graph: Graph) -> None:
    graph.check()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "g.json"
        save_ir(graph, path)
        text = path.read_text()
        loaded, clone = load_ir(path), graph.clone()
        save_ir(loaded, path)

        assert path.read_text() == text
    assert loaded == clone == graph
    assert str(clone) == str(graph)
    clone.check()
    assert not {*map(id, clone.graphs())} & {*map(id, graph.graphs())}
    assert not {*map(id, clone.values)} & {*map(id, graph.values)}
    if not has_ambiguous_constants(graph):
        data = constants_by_target(graph)
        assert parse_ir(str(graph), data) == graph
        assert parse_ir(format_ir(graph, provenance=True), data) == graph


@slow
@given(open_graphs(), st.data())
def test_specializing_step_by_step_is_specializing_at_once(graph: Graph, data: st.DataObject) -> None:
    sizes = {
        name: data.draw(
            st.integers(0 if range.low is None else range.low, 0 if range.high is None else range.high)
        )
        if range.low is not None and range.high is not None
        else max(range.low or 1, 1)
        if range.high is None
        else range.high
        for name, range in graph.symbols.items()
    }

    try:
        at_once = graph.specialize(sizes)
    except GraphError:
        return  # these sizes violate a constraint, or make another one negative
    by_steps = graph.specialize({})
    for name in data.draw(st.permutations([*sizes])):
        by_steps = by_steps.specialize({name: sizes[name]})

    assert not at_once.symbols
    assert by_steps == at_once  # the attributes of a node may be in another order


WRONG: list[Any] = [None, True, -1, 2.5, 10**30, "", "s", "s0+", "9**9", [], {}, ["s0"], [[]], {"int": "s"}]


def places(data: Any, steps: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the way to every part of a document."""
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    return [path for key, part in items for path in ((*steps, key), *places(part, (*steps, key)))]


@slow
@given(open_graphs(), st.data())
def test_a_damaged_document_is_refused_or_a_graph(graph: Graph, data: st.DataObject) -> None:
    def damage(document: Any) -> None:
        for _ in range(data.draw(st.integers(1, 2))):
            *way, last = data.draw(st.sampled_from(places(document)))
            parent = document
            for step in way:
                parent = parent[step]
            parent[last] = data.draw(st.sampled_from(WRONG))

    with tempfile.TemporaryDirectory() as folder:
        try:
            again = load_changed(graph, damage, Path(folder))
        except SerializationError:
            return
        again.check()
        assert again.clone() == again
