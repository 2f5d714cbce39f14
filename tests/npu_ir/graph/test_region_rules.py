"""Rules for the regions of a node, and the limit of their nesting."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import ones

from npu_ir import (
    Graph,
    GraphError,
    ParseError,
    SerializationError,
    TensorType,
    execute_ir,
    load_ir,
    parse_ir,
    save_ir,
)
from tests.support.documents import load_changed
from tests.support.rows import each_row

F32 = TensorType((2,), torch.float32)
DEPTH = 64


def nested(levels: int) -> Graph:
    graph = parse_ir("graph g { input %x: f32[2] return [%x] }")
    for _ in range(levels):
        outer = Graph("g")
        x = outer.add_input("x", F32)
        node = outer.insert("my.op", [x], types=F32, operands=["x"], regions={"body": graph})
        outer.set_outputs([node.outputs[0]])
        graph = outer
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
    def deepen(document: Any) -> None:
        regions = document["nodes"][0]["regions"]
        level = regions["body"]
        for _ in range(DEPTH):
            above = copy.deepcopy(regions["body"])
            above["nodes"][0]["regions"]["body"] = level
            level = above
        regions["body"] = level

    with pytest.raises(SerializationError, match="nested deeper than"):
        load_changed(nested(2), deepen, tmp_path)


@each_row("operands", ["5", "True", 'device("cpu")'])
def test_operands_of_a_region_that_are_no_list_are_refused(operands: str) -> None:
    with pytest.raises(GraphError, match="the region .true_fn. of node .y. takes 1 values, and gets 0"):
        parse_ir(
            "graph g { input %x: f32[2] input %c: bool\n"
            f"%y: f32[2] = higher_order.cond(pred=%c) {{operands={operands}}}\n"
            "region true_fn = graph a { input %a: f32[2] return (%a,) }\n"
            "region false_fn = graph b { input %a: f32[2] return (%a,) } return %y }"
        )


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
