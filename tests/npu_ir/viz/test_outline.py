"""Drawings of large graphs: modules that are opened, blocks that repeat, and what is cut."""

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


def deepest_of(paths: list[str]) -> int:
    return max((len(path.split(".")) for path in paths if path), default=0)


module_paths = st.lists(
    st.sampled_from(["", "a", "b", "a.c", "a.d", "b.c.d", "b.c.e", "b.c"]), min_size=1, max_size=30
)


@given(paths=module_paths, max_nodes=st.integers(2, 30))
def test_modules_are_opened_as_deep_as_the_boxes_allow(paths: list[str], max_nodes: int) -> None:
    drawn = diagram(chain(paths), max_nodes)

    counts = [1, *(runs(paths, depth) for depth in range(1, 4)), len(paths)]
    fitting = [*counts[: deepest_of(paths) + 1], len(paths)]
    wanted = max(count for count in fitting if count <= max_nodes)
    assert len(node_boxes(drawn)) == (wanted if wanted > 1 or len(paths) == 1 else max_nodes)


@given(paths=module_paths, depth=st.integers(0, 6))
def test_a_wanted_depth_is_kept(paths: list[str], depth: int) -> None:
    drawn = diagram(chain(paths), depth=depth)

    deepest = deepest_of(paths)
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
    deepest = deepest_of(paths)
    keys = [
        (path.split(".")[:depth] if path else []) if depth <= deepest else [index]
        for index, path in enumerate(paths)
    ]
    group_of = list(
        itertools.accumulate((left != right for left, right in itertools.pairwise(keys)), initial=0)
    )

    found = {(edge.source, edge.target) for edge in diagram(graph, depth=depth).edges}

    places = {node: f"n{group}" for node, group in zip(graph.nodes, group_of, strict=True)}
    reads = [(value.producer, node) for node in graph.nodes for value in node.inputs]
    groups = [(places[source] if source else "i0", places[node]) for source, node in reads]
    assert found == {(source, target) for source, target in groups if source != target}


def test_a_closed_module_tells_its_ops_and_parameters() -> None:
    graph = blocks(2)

    drawn = diagram(graph, depth=1)

    (box,) = (box for box in drawn.boxes if box.kind is BoxKind.MODULE)
    assert (box.title, box.details) == ("layers", ("6 ops", "norm x2, linear x2, add x2", "12 parameters"))
    assert drawn.summary == "8 nodes, 12 parameters, modules opened to depth 1"


def read_elsewhere() -> Graph:
    """Return repeated blocks, one of which reads what the third block returns."""
    graph = blocks(24)
    early = next(node for node in graph.nodes if node.provenance.module == "layers.2")
    late = next(node for node in graph.nodes if node.provenance.module == "layers.9.norm")
    graph.set_input(late, 0, early.outputs[0])
    return graph


DEEP = ".".join("a" * 10_000)
NUMBERS = ["one", "two", "three", "four", "five"]


@each_row("graph, options, boxes, frames", {
    "what a module runs itself is titled by its ops": (
        chain(["a.b", "a", "a", "a.c", "a.c"], op_type=NUMBERS.__getitem__), {"depth": 2},
        ["one", "two, three", "c"], ["a"]),
    "a module that runs twice": (chain(["a.x", "a.y", "b", "a.x", "a.y"]), {"depth": 1}, ["a", "op2", "a"],
        []),
    "a repeated block as a single box": (blocks(24), {"max_nodes": 4},
        ["stem", "layers.0 ... 23 (x24)", "head"], []),
    "repeated blocks shown once": (blocks(24), {"max_nodes": 10}, ["stem", "norm", "linear", "add", "head"],
        ["layers.0 ... 23 (x24)"]),
    "repeated blocks where there is room": (blocks(2), {"max_nodes": 8},
        ["stem", *["norm", "linear", "add"] * 2, "head"], ["layers", "0", "1"]),
    "a block with another attribute": (blocks(24, lambda index: {"scale": int(index >= 8)}),
        {"max_nodes": 12},
        ["stem", *["norm", "linear", "add"] * 2, "head"], ["layers", "0 ... 7 (x8)", "8 ... 23 (x16)"]),
    "a block that reads from elsewhere": (read_elsewhere(), {"max_nodes": 20},
        ["stem", *["norm", "linear", "add"] * 2, "head"], ["layers", "0 ... 8 (x9)", "9 ... 23 (x15)"]),
    "a flat graph that is cut": (chain([""] * 200), {"max_nodes": 3}, ["op0", "op1", "... 198 more nodes"],
        []),
    "a depth that is cut": (chain([f"a.{name}" for name in "abcdefgh"]), {"max_nodes": 5, "depth": 2},
        ["op0", "op1", "op2", "op3", "... 4 more nodes"], ["a"]),
    "a path of any depth": (chain([DEEP, DEEP, DEEP + ".b"]), {"depth": 5_000}, ["op0", "op1", "op2"], None),
})  # fmt: skip
def test_modules_repetitions_and_cuts_are_shown(
    graph: Graph, options: dict[str, int], boxes: list[str], frames: list[str] | None
) -> None:
    drawn = diagram(graph, **options)

    assert node_boxes(drawn) == boxes
    assert frames in (None, [frame.title for frame in drawn.frames])


def test_edges_of_repeated_blocks_and_of_what_is_cut_are_those_of_the_nodes_in_them() -> None:
    repeated, cut = diagram(blocks(24), max_nodes=10), diagram(chain([""] * 200), max_nodes=12)

    assert edges(repeated) == {
        ("x", "stem", ""),
        ("mask", "add", ""),
        ("stem", "norm", "2x3 f32"),
        ("norm", "linear", "2x3 f32"),
        ("stem", "add", "2x3 f32"),
        ("linear", "add", "2x3 f32"),
        ("add", "head", "2x3 f32"),
        ("head", "output", ""),
    }
    assert {("op10", "... 189 more nodes", "2x3 f32"), ("... 189 more nodes", "output", "")} < edges(cut)


@each_row("options, message", [
    ({"max_nodes": 1}, "max_nodes=1: a drawing has room for 2 boxes at least"),
    ({"depth": -1}, "depth=-1 is negative\n  fix: use 0 for one box"),
])  # fmt: skip
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
