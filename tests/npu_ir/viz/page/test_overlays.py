"""Overlays of pages: read from what other commands write, placed on the nodes, or refused."""

from pathlib import Path
from typing import Any

import pytest

from npu_ir import Graph, diff_ir, to_html, write_html
from npu_ir.errors import VisualizationError
from npu_ir.viz.page.document import GraphDocument
from npu_ir.viz.page.overlays import place_overlays, read_overlays
from tests.support.small_programs import program

CHAIN = "input %x: f32[2] %a: f32[2] = one(%x) %b: f32[2] = two(%a) %c: f32[2] = three(%b) return %c"


def step(name: str, seconds: float, *nodes: str) -> dict[str, Any]:
    more = {"backend": "aten", "kernel": "k", "bytes_read": 8, "bytes_written": 4}
    return {"name": name, "nodes": list(nodes or [name]), "seconds": seconds, **more}


def profiled(*steps: dict[str, Any]) -> dict[str, Any]:
    return {"graph": "g", "call_seconds": 1.0, "steps": list(steps)}


def row(name: str, counterpart: str, difference: float | str, *, diverges: bool = False) -> dict[str, Any]:
    numbers = {"max_abs": difference, "diverges": diverges, "problem": "too far" if diverges else None}
    return {"kind": "value", "name": name, "counterpart": counterpart, **numbers}


def placed(graph: Graph, data: dict[str, Any]) -> dict[str, list[list[Any]]]:
    """Return the values of each overlay of ``graph``, with names in place of positions."""
    document = GraphDocument(graph)
    (found,) = place_overlays([document], [read_overlays(data)])
    named = {item["name"]: item["values"] for item in found}
    return {
        name: [[document.boxes[at]["name"], value, remark] for at, value, remark in values]
        for name, values in named.items()
    }


def test_a_profile_gives_times_and_memory_traffic() -> None:
    found = placed(program(CHAIN), profiled(step("a", 0.25), step("c", 0.5, "b", "c")))

    assert found == {
        "time": [["a", 0.25, "aten, k"], ["b", 0.0, "computed with c"], ["c", 0.5, "aten, k"]],
        "memory traffic": [["a", 12.0, "aten, k"], ["b", 0.0, "computed with c"], ["c", 12.0, "aten, k"]],
    }


def test_a_comparison_gives_differences_of_the_side_that_the_graph_is() -> None:
    data = {"values_a": 2, "rows": [row("a", "p", 0.5), row("b", "q", "nan", diverges=True)]}
    other = program(CHAIN.replace("%a", "%p").replace("%b", "%q"))

    first, second = placed(program(CHAIN), data), placed(other, data)

    assert first == {
        "difference": [["a", 0.5, "within tolerance or rounding"], ["b", 1e300, "differs: too far"]]
    }
    assert second == {
        "difference": [["p", 0.5, "within tolerance or rounding"], ["q", 1e300, "differs: too far"]]
    }


def test_an_explanation_gives_backends_and_times_if_it_has_them() -> None:
    node = {"name": "a", "backend": "aten", "kernel": "", "reasons": {"host": "no kernel"}, "seconds": None}
    timed = {**node, "kernel": "k", "reasons": {}, "seconds": 0.5}

    plain, with_times = (
        placed(program(CHAIN), {"backends": ["aten"], "nodes": [item]}) for item in (node, timed)
    )

    assert plain == {"backend": [["a", "aten", "not host: no kernel"]]}
    assert with_times == {"backend": [["a", "aten", "k"]], "time by backend": [["a", 0.5, "aten, k"]]}


def test_a_memory_plan_gives_the_memory_in_use() -> None:
    found = placed(program(CHAIN), {"instructions": ["a", "b"], "live_bytes": [8, 16], "peak_bytes": 16})

    assert found == {"memory in use": [["a", 8.0, ""], ["b", 16.0, ""]]}


def test_nodes_that_the_graph_does_not_have_are_counted() -> None:
    (found,) = place_overlays(
        [GraphDocument(program(CHAIN))], [read_overlays(profiled(step("a", 1.0), step("z", 1.0)))]
    )

    assert [(item["name"], item["missing"]) for item in found] == [("time", 1), ("memory traffic", 1)]


def test_overlays_of_a_difference_are_those_of_the_graph_that_they_fit() -> None:
    diff = diff_ir(program(CHAIN), program(CHAIN.replace("%c", "%z")))
    documents = [GraphDocument(diff.a), GraphDocument(diff.b)]

    before, after = place_overlays(documents, [read_overlays(profiled(step("z", 1.0)))])

    assert (before, [item["name"] for item in after]) == ([], ["time", "memory traffic"])


def test_an_overlay_of_another_graph_is_refused() -> None:
    data = profiled(step("a", 1.0), step("y", 1.0), step("z", 1.0))

    with pytest.raises(
        VisualizationError, match=r"2 of its 3 nodes are not in 'g': y, z\n.*\n  fix: measure this graph"
    ):
        to_html(program(CHAIN), overlays=[data])


def test_an_overlay_without_nodes_is_refused() -> None:
    with pytest.raises(VisualizationError, match="it has no nodes\n  at: plain data"):
        to_html(program(CHAIN), overlays=[profiled()])


def test_what_is_not_a_list_or_a_time_is_refused() -> None:
    with pytest.raises(VisualizationError, match="overlays= is one measurement\n  fix: give a list"):
        to_html(program(CHAIN), overlays=profiled(step("a", 1.0)))  # type: ignore[arg-type]
    with pytest.raises(VisualizationError, match="not the content: .*nan is not a time"):
        to_html(program(CHAIN), overlays=[profiled(step("a", float("nan")))])


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        pytest.param('{"a": 1}', "it is not an overlay: an object with the keys a", id="another object"),
        pytest.param("[1]", "it is not an overlay: no object", id="list"),
        pytest.param("{", "not valid JSON", id="not JSON"),
        pytest.param(
            '{"steps": [{}], "call_seconds": 1}',
            r"it has the keys call_seconds, steps, but not the content: KeyError\('nodes'\)",
            id="without content",
        ),
    ],
)
def test_a_file_that_no_command_wrote_is_refused(content: str, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(content)

    with pytest.raises(
        VisualizationError, match=rf"{problem}(.|\n)*x.json\n  fix: give a file that npu profile"
    ):
        to_html(program(CHAIN), overlays=[path])


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(VisualizationError, match=r"cannot be read: No such file(.|\n)*missing.json"):
        to_html(program(CHAIN), overlays=[tmp_path / "missing.json"])


def test_a_page_is_written_to_a_file_or_the_old_one_stays(tmp_path: Path) -> None:
    graph, path = program(CHAIN), tmp_path / "page.html"

    assert write_html(graph, path) == path
    with pytest.raises(VisualizationError, match="not an overlay"):
        write_html(graph, path, overlays=[{}])

    assert path.read_text("utf-8") == to_html(graph)


def test_a_page_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(VisualizationError, match="the page cannot be written: No such file"):
        write_html(program(CHAIN), tmp_path / "missing" / "page.html")
