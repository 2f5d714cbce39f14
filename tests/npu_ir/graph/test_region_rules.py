"""Rules for the regions of a node, and the limit of their nesting."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import ones, tensor

from npu_ir import (
    ExecutionError,
    Graph,
    GraphError,
    ParseError,
    ScalarType,
    SerializationError,
    TensorType,
    execute_ir,
    load_ir,
    parse_ir,
    save_ir,
)
from npu_ir.core.types import Type
from tests.support.rows import each_row

F32 = TensorType((2,), torch.float32)
I64 = TensorType((2,), torch.int64)
TRUE = TensorType((), torch.bool)
DEPTH = 64


def region(*types: Type, name: str = "body") -> Graph:
    """Return a graph that returns what it takes."""
    graph = Graph(name)
    graph.set_outputs([graph.add_input(f"y{index}", type) for index, type in enumerate(types)])
    return graph


def branching(taken: Graph, other: Graph | None = None) -> Graph:
    """Return a graph with a cond on one f32[2]."""
    graph = Graph("g")
    p, x = graph.add_input("p", TRUE), graph.add_input("x", F32)
    node = graph.insert(
        "higher_order.cond",
        [p, x],
        {"operands": [None]},
        types=[F32],
        operands=["pred", "operands[0]"],
        regions={"true_fn": taken, "false_fn": region(F32) if other is None else other},
    )
    graph.set_outputs(node.outputs[0])
    return graph


def looping(condition: Graph, body: Graph) -> Graph:
    """Return a graph with a while_loop that carries an f32[2] and passes on an i64[2]."""
    graph = Graph("g")
    x, y = graph.add_input("x", F32), graph.add_input("y", I64)
    node = graph.insert(
        "higher_order.while_loop",
        [x, y],
        {"carried_inputs": [None], "additional_inputs": [None]},
        types=[F32],
        operands=["carried_inputs[0]", "additional_inputs[0]"],
        regions={"cond_fn": condition, "body_fn": body},
    )
    graph.set_outputs(node.outputs[0])
    return graph


def returning(types: list[Type], results: list[int]) -> Graph:
    """Return a graph that takes values of these types and returns some of them."""
    graph = Graph("body")
    inputs = [graph.add_input(f"y{index}", type) for index, type in enumerate(types)]
    graph.set_outputs([inputs[index] for index in results])
    return graph


@each_row(
    "make, message",
    {
        "takes too many": (
            lambda: branching(returning([F32, F32], [0])),
            "the region 'true_fn' of node 'cond' takes 2 values, and gets 1",
        ),
        "takes another dtype": (
            lambda: branching(region(F32), returning([I64], [0])),
            r"the region 'false_fn' of node 'cond' takes i64\[2\] as number 0, and gets f32\[2\]",
        ),
        "takes another rank": (
            lambda: branching(returning([TensorType((2, 2), torch.float32)], [0])),
            r"the region 'true_fn' of node 'cond' takes f32\[2, 2\] as number 0, and gets f32\[2\]",
        ),
        "takes a number": (
            lambda: branching(returning([ScalarType("int")], [0])),
            r"the region 'true_fn' of node 'cond' takes int as number 0, and gets f32\[2\]",
        ),
        "returns too many": (
            lambda: branching(returning([F32], [0, 0])),
            "the region 'true_fn' of node 'cond' returns 2 values, and should return 1",
        ),
        "condition without what is passed on": (
            lambda: looping(returning([F32], [0]), returning([F32, I64], [0])),
            "the region 'cond_fn' of node 'while_loop' takes 1 values, and gets 2",
        ),
        "body returns another type": (
            lambda: looping(returning([F32, I64], [0]), returning([F32, I64], [1])),
            (
                r"the region 'body_fn' of node 'while_loop' returns i64\[2\] as number 0, "
                r"and should return f32\[2\]"
            ),
        ),
    },
)
def test_a_region_that_does_not_fit_its_node_breaks_a_rule(make: Callable[[], Graph], message: str) -> None:
    graph = make()

    with pytest.raises(GraphError, match=message + r"\n  at: graph 'g', rule 'regions'"):
        graph.check()


def test_a_region_may_have_sizes_of_its_own_symbols() -> None:
    graph = Graph("g")
    rows = graph.add_symbol("s")
    p, x = graph.add_input("p", TRUE), graph.add_input("x", TensorType((rows,), torch.float32))
    inner = Graph("body")
    inner.set_outputs([inner.add_input("y", TensorType((inner.add_symbol("t"),), torch.float32))])
    node = graph.insert(
        "higher_order.cond",
        [p, x],
        {"operands": [None]},
        types=[x.type],
        operands=["pred", "operands[0]"],
        regions={"true_fn": inner, "false_fn": inner.clone()},
    )
    graph.set_outputs(node.outputs[0])

    graph.check()

    assert torch.equal(execute_ir(graph, (tensor(True), ones(5))), ones(5))


# Depth


def nested(levels: int) -> Graph:
    """Return a graph in which regions lie in each other."""
    graph = region(F32)
    for _ in range(levels):
        graph = branching_in(graph)
    return graph


def branching_in(body: Graph) -> Graph:
    graph = Graph("g")
    x = graph.add_input("x", F32)
    node = graph.insert("my.op", [x], types=[F32], operands=["x"], regions={"body": body})
    graph.set_outputs([node.outputs[0]])
    return graph


def test_regions_may_lie_in_each_other_up_to_a_limit(tmp_path: Path) -> None:
    deepest = nested(DEPTH - 1)

    save_ir(deepest, tmp_path / "g.json")

    assert parse_ir(str(deepest)) == load_ir(tmp_path / "g.json") == deepest.clone() == deepest


def test_a_region_below_the_limit_cannot_be_inserted() -> None:
    with pytest.raises(GraphError, match="regions nested deeper than 64\n  at: region 'body'"):
        nested(DEPTH + 1)


def test_a_region_inside_of_regions_counts_from_the_outermost() -> None:
    graph = innermost = nested(DEPTH - 1)
    while innermost.nodes:
        innermost = innermost.nodes[0].regions["body"]

    with pytest.raises(GraphError, match="regions nested deeper than 64\n  at: region 'body'"):
        innermost.insert("my.op", [], types=[F32], regions={"body": nested(1)})

    assert not innermost.nodes
    graph.check()


def test_text_of_regions_below_the_limit_is_refused() -> None:
    text = "graph g { my.op() region body = " * (DEPTH + 2)

    with pytest.raises(ParseError, match=r"regions nested deeper than 64\n  at: line 1, column \d+"):
        parse_ir(text)


def test_a_file_of_regions_below_the_limit_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "g.json"
    save_ir(nested(2), path)
    document = json.loads(path.read_text())
    level = document["nodes"][0]["regions"]["body"]
    for _ in range(DEPTH):
        above = json.loads(json.dumps(document["nodes"][0]["regions"]["body"]))
        above["nodes"][0]["regions"]["body"] = level
        level = above
    document["nodes"][0]["regions"]["body"] = level
    path.write_text(json.dumps(document))

    with pytest.raises(SerializationError, match="nested deeper than"):
        load_ir(path)


# Shown and run


def test_the_text_of_a_region_can_be_read_on_its_own() -> None:
    graph = parse_ir(
        "graph g { symbol s in [2, 9] symbol t in [0, 3] input %p: bool[] input %x: f32[s]\n"
        "%c: f32[s] = higher_order.cond(pred=%p, operands=(%x))\n"
        "region true_fn = graph a { input %y: f32[s] %n: f32[s] = aten.neg.default(self=%y) return [%n] }\n"
        "region false_fn = graph b { input %y: f32[s] return [%y] } return %c }"
    )
    body = graph.nodes[0].regions["true_fn"]

    alone = parse_ir(str(body))

    assert "symbol s in [2, 9]" in str(body)
    assert "symbol" not in str(graph).partition("region true_fn")[2]
    assert torch.equal(execute_ir(alone, (ones(4),))[0], -ones(4))


def test_an_error_two_regions_deep_names_the_inner_node() -> None:
    graph = parse_ir(
        "graph g { input %p: bool[] input %x: f32[2] input %i: i64[1]\n"
        "%outer: f32[1] = higher_order.cond(pred=%p, operands=(%p, %x, %i))\n"
        "region true_fn = graph a { input %p: bool[] input %x: f32[2] input %i: i64[1]\n"
        "  %inner: f32[1] = higher_order.cond(pred=%p, operands=(%x, %i))\n"
        "  region true_fn = graph b { input %x: f32[2] input %i: i64[1]\n"
        "    %chosen: f32[1] = aten.index_select.default(self=%x, index=%i) {dim=0} return [%chosen] }\n"
        "  region false_fn = graph b { input %x: f32[2] input %i: i64[1]\n"
        "    %chosen: f32[1] = aten.index_select.default(self=%x, index=%i) {dim=0} return [%chosen] }\n"
        "  return [%inner] }\n"
        "region false_fn = graph d { input %p: bool[] input %x: f32[2] input %i: i64[1]\n"
        "    %chosen: f32[1] = aten.index_select.default(self=%x, index=%i) {dim=0} return [%chosen] }\n"
        "return %outer }"
    )

    with pytest.raises(
        ExecutionError,
        match=(
            r"aten.index_select.default failed[\s\S]*\n"
            r"  at: node \S+, in a region of node \S+, in a region of node"
        ),
    ):
        execute_ir(graph, (tensor(True), ones(2), tensor([7])))
