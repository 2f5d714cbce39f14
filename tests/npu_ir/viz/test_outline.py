"""Drawings of large graphs: modules that are opened, blocks that repeat, and what is cut."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npu_ir import Graph, Provenance, Value
from npu_ir.errors import VisualizationError
from npu_ir.viz import to_svg
from npu_ir.viz.diagram import BoxKind
from tests.support.drawn_graphs import F32, FORMS, blocks, chain, diagram, edges, node_boxes
from tests.support.rows import each_row
from tests.support.tiers import thin


def runs(paths: list[str], depth: int) -> int:
    """Count the modules down to ``depth``, one for each stretch of nodes that stand together."""
    return len(list(itertools.groupby(paths, key=lambda path: path.split(".")[:depth] if path else [])))


module_paths = st.lists(
    st.sampled_from(["", "a", "b", "a.c", "a.d", "b.c.d", "b.c.e", "b.c"]), min_size=1, max_size=30
)


@given(paths=module_paths, max_nodes=st.integers(2, 30))
def test_modules_are_opened_as_deep_as_the_boxes_allow(paths: list[str], max_nodes: int) -> None:
    drawn = diagram(chain(paths), max_nodes)

    counts = [1, *(runs(paths, depth) for depth in range(1, 4)), len(paths)]
    deepest = 1 + max((len(path.split(".")) for path in paths if path), default=0)
    fitting = [count for count in [*counts[:deepest], len(paths)] if count <= max_nodes]
    wanted = max(fitting)
    assert len(node_boxes(drawn)) == (wanted if wanted > 1 or len(paths) == 1 else max_nodes)


@given(paths=module_paths, depth=st.integers(0, 6))
def test_a_wanted_depth_is_kept(paths: list[str], depth: int) -> None:
    drawn = diagram(chain(paths), depth=depth)

    deepest = max((len(path.split(".")) for path in paths if path), default=0)
    assert len(node_boxes(drawn)) == (len(paths) if depth > deepest else runs(paths, depth) if depth else 1)


@given(paths=module_paths, depth=st.integers(0, 4), seed=st.randoms(use_true_random=False))
def test_edges_between_boxes_are_those_between_the_nodes_in_them(
    paths: list[str], depth: int, seed: st.DataObject
) -> None:
    graph = Graph()
    values: list[Value] = [graph.add_input("x", F32)]
    for index, path in enumerate(paths):
        read = [values[seed.randrange(len(values))] for _ in range(2)]
        values += graph.insert(f"op{index}", read, types=F32, provenance=Provenance(path)).outputs
    deepest = max((len(path.split(".")) for path in paths if path), default=0)
    keys = [
        (path.split(".")[:depth] if path else []) if depth <= deepest else [index]
        for index, path in enumerate(paths)
    ]
    group_of = list(
        itertools.accumulate((left != right for left, right in itertools.pairwise(keys)), initial=0)
    )

    found = {(edge.source, edge.target) for edge in diagram(graph, depth=depth).edges}

    position = {node: index for index, node in enumerate(graph.nodes)}
    groups = [
        (
            "i0" if value.producer is None else f"n{group_of[position[value.producer]]}",
            f"n{group_of[position[node]]}",
        )
        for node in graph.nodes
        for value in node.inputs
    ]
    assert found == {(source, target) for source, target in groups if source != target}


def test_a_closed_module_tells_its_ops_and_parameters() -> None:
    graph = blocks(2)

    drawn = diagram(graph, depth=1)

    (box,) = (box for box in drawn.boxes if box.kind is BoxKind.MODULE)
    assert (box.title, box.details) == ("layers", ("6 ops", "norm x2, linear x2, add x2", "12 parameters"))
    assert drawn.summary == "8 nodes, 12 parameters, modules opened to depth 1"


def test_what_a_module_runs_itself_is_titled_by_its_ops() -> None:
    graph = chain(
        ["a.b", "a", "a", "a.c", "a.c"], op_type=["one", "two", "three", "four", "five"].__getitem__
    )

    drawn = diagram(graph, depth=2)

    assert [frame.title for frame in drawn.frames] == ["a"]
    assert node_boxes(drawn) == ["one", "two, three", "c"]


def test_a_module_that_runs_twice_is_shown_twice() -> None:
    graph = chain(["a.x", "a.y", "b", "a.x", "a.y"])

    drawn = diagram(graph, depth=1)

    assert node_boxes(drawn) == ["a", "op2", "a"]


def test_nodes_of_one_module_stand_in_its_frame() -> None:
    graph = blocks(1)

    drawn = diagram(graph)

    (frame,) = drawn.frames
    assert (frame.title, [item.title for item in frame.items]) == ("layers.0", ["norm", "linear", "add"])
    assert [item.details[0] for item in frame.items] == ["norm: %norm", "up: %linear", "%add"]


def test_repeated_blocks_are_shown_once_when_room_is_short() -> None:
    drawn = diagram(blocks(24), max_nodes=10)

    (frame,) = drawn.frames
    assert frame.title == "layers.0 ... 23 (x24)"
    assert node_boxes(drawn) == ["stem", "norm", "linear", "add", "head"]
    assert edges(drawn) == {
        ("x", "stem", ""),
        ("mask", "add", ""),
        ("stem", "norm", "2x3 f32"),
        ("norm", "linear", "2x3 f32"),
        ("stem", "add", "2x3 f32"),
        ("linear", "add", "2x3 f32"),
        ("add", "head", "2x3 f32"),
        ("head", "output", ""),
    }


def test_repeated_blocks_are_all_shown_when_there_is_room() -> None:
    drawn = diagram(blocks(4), max_nodes=14)

    assert len(node_boxes(drawn)) == 14
    assert "(x" not in "".join(frame.title for frame in drawn.frames)


def test_a_repeated_block_can_be_a_single_box() -> None:
    drawn = diagram(blocks(24), max_nodes=4)

    assert node_boxes(drawn) == ["stem", "layers.0 ... 23 (x24)", "head"]


def test_a_block_with_another_attribute_is_not_a_repetition() -> None:
    drawn = diagram(blocks(24, lambda index: {"scale": int(index >= 8)}), max_nodes=12)

    assert [frame.title for frame in drawn.frames if "(x" in frame.title] == [
        "0 ... 7 (x8)",
        "8 ... 23 (x16)",
    ]


def test_a_block_that_reads_from_elsewhere_is_not_a_repetition() -> None:
    graph = blocks(24)
    early = next(node for node in graph.nodes if node.provenance.module == "layers.2")
    late = next(node for node in graph.nodes if node.provenance.module == "layers.9.norm")
    graph.set_input(late, 0, early.outputs[0])

    drawn = diagram(graph, max_nodes=20)

    repeated = [frame.title for frame in drawn.frames if "(x" in frame.title]
    assert repeated == ["0 ... 8 (x9)", "9 ... 23 (x15)"]


def test_further_copies_of_a_block_keep_what_they_read_from_before_the_first() -> None:
    graph = Graph()
    value = graph.insert("stem", types=F32).outputs[0]
    for index in range(8):
        past = graph.add_input(f"past{index}", F32)
        for name in ("a", "b", "c"):
            inputs = [value, past] if name == "b" else [value]
            value = graph.insert(name, inputs, types=F32, provenance=Provenance(f"h.{index}.{name}")).outputs[
                0
            ]
    graph.set_outputs(value)

    drawn = diagram(graph, max_nodes=5)

    assert {source for source, target, _ in edges(drawn) if target == "b"} == {
        "a",
        *(f"past{index}" for index in range(8)),
    }


def test_further_copies_of_a_block_keep_what_nodes_before_the_first_made() -> None:
    graph = Graph()
    made = [graph.insert(f"make{index}", types=F32).outputs[0] for index in range(24)]
    value = made[-1]
    for index in range(8):
        for name in ("a", "b", "c"):
            inputs = [value, made[3 * index]] if name == "b" else [value]
            value = graph.insert(name, inputs, types=F32, provenance=Provenance(f"h.{index}.{name}")).outputs[
                0
            ]
    graph.set_outputs(value)

    drawn = diagram(graph, max_nodes=27)

    read = {source for source, target, _ in edges(drawn) if target == "b"}
    assert read == {"a", *(f"make{3 * index}" for index in range(8))}


def test_a_flat_graph_that_is_too_large_is_cut_with_a_note() -> None:
    drawn = diagram(chain([""] * 200), max_nodes=12)

    boxes = node_boxes(drawn)
    assert len(boxes) == 12
    assert boxes[-2:] == ["op10", "... 189 more nodes"]
    assert {("op10", "... 189 more nodes", "2x3 f32"), ("... 189 more nodes", "output", "")} < edges(drawn)


def test_a_depth_with_too_many_modules_is_cut_with_a_note() -> None:
    drawn = diagram(chain([f"a.{name}" for name in "abcdefgh"]), max_nodes=5, depth=2)

    assert node_boxes(drawn) == ["op0", "op1", "op2", "op3", "... 4 more nodes"]
    assert [frame.title for frame in drawn.frames] == ["a"]


@each_row(
    "options, message",
    [
        ({"max_nodes": 1}, "max_nodes=1: a drawing has room for 2 boxes at least"),
        ({"depth": -1}, "depth=-1 is negative\n  fix: use 0 for one box"),
    ],
)
@each_row("form", FORMS)
def test_limits_that_make_no_sense_are_refused(
    form: Callable[..., str], options: dict[str, int], message: str
) -> None:
    with pytest.raises(VisualizationError, match=re.escape(message)):
        form(blocks(1), **options)


LARGE = {
    "modules": lambda: chain([f"a.b{i // 5000}.c{i // 50}.d" for i in range(50_000)]),
    "blocks": lambda: blocks(16_600),
    "flat": lambda: chain([""] * 50_000),
}


@pytest.mark.parametrize("make", thin([*LARGE.values()], 1))
def test_a_graph_of_50_000_nodes_is_drawn_in_seconds(make: Callable[[], Graph]) -> None:
    graph = make()

    start = time.process_time()
    text = to_svg(graph)

    assert time.process_time() - start < 10
    assert len(text) < 200_000


def test_a_module_path_of_any_depth_can_be_drawn() -> None:
    deep = ".".join("a" * 10_000)

    drawn = diagram(chain([deep, deep, deep + ".b"]), depth=5_000)

    assert node_boxes(drawn) == ["op0", "op1", "op2"]
