"""Origins of values are recorded while a graph is rewritten, and stay true."""

import copy
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.export import Dim

from npu_ir import (
    Graph,
    GraphError,
    OpNode,
    Origin,
    SerializationError,
    TensorType,
    Value,
    extract_ir,
    load_ir,
    parse_ir,
    save_ir,
)
from tests.support.corpus.case import Function
from tests.support.rows import each_row
from tests.support.schema import VALIDATOR

F32 = TensorType((4,), torch.float32)


def captured(function: Callable[..., Any], *args: Any) -> Graph:
    return extract_ir(Function(function), args or (torch.ones(4),))


def chain() -> Graph:
    return captured(lambda x: x.sin().exp().cos().neg())


def names(value: Value) -> list[str]:
    return [origin.name for origin in value.origins]


def call(graph: Graph, op: str, value: Value, before: OpNode | None = None, name: str | None = None) -> Value:
    (made,) = graph.insert(
        f"aten.{op}", [value], types=value.type, operands=["self"], before=before, name=name
    ).outputs
    return made


def record(graph: Graph) -> dict[str, list[str]]:
    return {value.name: names(value) for node in graph.nodes for value in node.outputs}


def test_a_captured_value_stands_for_itself_and_says_where_it_is_from() -> None:
    graph = chain()
    (sin,) = graph.node("sin").outputs

    assert graph.tracks_origins
    assert sin.is_original
    (origin,) = sin.origins
    assert origin == Origin("sin", graph.node("sin").provenance.module, graph.node("sin").provenance.source)
    assert "case.py:" in origin.source


def test_the_name_of_a_value_that_is_gone_says_nothing_of_the_next_of_this_name() -> None:
    graph = chain()
    exp = graph.node("exp")
    graph.replace_all_uses(exp.outputs[0], exp.inputs[0])
    graph.erase(exp)

    cos = graph.node("cos")
    made = graph.insert("aten.exp.default", cos.inputs, types=F32, operands=["self"], name="exp").outputs[0]
    graph.replace_all_uses(cos.outputs[0], made)

    assert made.name == "exp"
    assert names(made) == ["cos"]


def test_a_value_in_other_strides_may_be_said_to_be_the_same() -> None:
    graph = captured(lambda x: x.sin().cos(), torch.ones(2, 3))
    cos = graph.node("cos")
    moved = TensorType((2, 3), torch.float32, strides=(1, 2))
    made = graph.insert("aten.cos.default", cos.inputs, types=moved, operands=["self"]).outputs[0]

    graph.add_origins(made, cos.outputs[0])

    assert names(made) == names(cos.outputs[0]) == ["cos"]
    other = graph.add_input("other", F32)
    with pytest.raises(
        GraphError, match=r"%sin is f32\[2, 3\], it cannot stand for %other, which is f32\[4\]"
    ):
        graph.add_origins(graph.value("sin"), other)


def replace(graph: Graph) -> None:
    graph.replace_all_uses(graph.value("cos"), graph.value("exp"))


def change(graph: Graph) -> None:
    exp = graph.node("exp")
    graph.set_input(exp, 0, call(graph, "tan.default", graph.inputs[0], before=exp))


@each_row("edits", [[change, replace], [replace, change]])
def test_a_node_edited_in_place_stands_for_what_it_replaces(edits: list[Callable[[Graph], None]]) -> None:
    graph = chain()

    for edit in edits:
        edit(graph)
    graph.rename(graph.value("sin"), "sine")
    graph.settle_origins()

    found = record(graph)
    assert (found["exp"], found["neg"], found["sine"]) == (["cos"], ["neg"], ["sin"])


def test_values_between_an_edited_node_and_a_replaced_one_stand_for_nothing() -> None:
    graph = captured(lambda x: (x * 2).sin().exp().mul(0.5).neg())
    mul, exp, last = graph.node("mul"), graph.node("exp"), graph.node("mul_1")

    graph.set_attrs(mul, {"other": 3.0})
    graph.replace_all_uses(last.outputs[0], exp.outputs[0])
    graph.settle_origins()

    found = record(graph)
    assert found["mul"] == found["sin"] == []
    assert found["exp"] == ["mul_1"]
    assert found["neg"] == ["neg"]


def test_an_input_that_stands_for_the_same_is_no_change() -> None:
    """A node put behind another reads, for a moment, itself."""
    graph = chain()
    (sin,) = graph.node("sin").outputs
    copied = call(graph, "clone.default", sin, before=graph.node("exp"))

    graph.replace_all_uses(sin, copied)
    graph.set_input(copied.producer, 0, sin)
    graph.settle_origins()

    assert names(sin) == names(copied) == ["sin"]


def rewritten() -> Graph:
    """Return a graph with a value that stands for two, one that stands for another, and one for nothing."""
    graph = chain()
    (sin,), (exp,), (cos,) = (graph.node(name).outputs for name in ("sin", "exp", "cos"))
    graph.replace_all_uses(exp, sin)
    made = call(graph, "tan.default", call(graph, "abs.default", sin), name="cos")
    graph.replace_all_uses(cos, made)
    graph.erase(graph.node("cos"))
    graph.erase(graph.node("exp"))
    graph.sort()
    return graph


def test_copies_stand_for_the_same() -> None:
    graph = rewritten()
    expected = record(graph)
    assert expected["sin"] == ["sin", "exp"]
    assert [] in expected.values()

    pickled = pickle.loads(pickle.dumps(graph))  # noqa: S301 - of our own
    for copied in (graph.clone(), copy.deepcopy(graph), graph.subgraph(graph.nodes), pickled):
        assert record(copied) == expected
        assert copied.tracks_origins
        assert call(copied, "neg.default", copied.value("sin")).origins == ()


def test_a_specialized_graph_stands_for_the_same() -> None:
    graph = extract_ir(
        Function(lambda x: x.sin() + x.shape[0]), (torch.ones(4),), dynamic_shapes={"args": ({0: Dim("n")},)}
    )

    special = graph.specialize(dict.fromkeys(graph.symbols, 7))

    assert special.tracks_origins
    assert {name: [name] for name in ("sin", "add")} == record(special)


def test_files_keep_what_values_stand_for(tmp_path: Path) -> None:
    graph = rewritten()

    save_ir(graph, tmp_path / "net.json")
    loaded = load_ir(tmp_path / "net.json")

    VALIDATOR.validate(json.loads((tmp_path / "net.json").read_text(encoding="utf-8")))
    assert [value.origins for value in loaded.values] == [value.origins for value in graph.values]
    assert loaded.tracks_origins


def test_a_file_of_a_captured_graph_says_nothing_of_origins(tmp_path: Path) -> None:
    save_ir(chain(), tmp_path / "net.json")

    assert "origins" not in (tmp_path / "net.json").read_text(encoding="utf-8")
    assert not load_ir(tmp_path / "net.json").tracks_origins


@each_row("origins, message", {
    "number": ("[]", r"expected a list for each of 1 outputs, found \[\]"),
    "triple": ('[[["sin", "m"]]]', "expected a name, a module and a line"),
    "text": ("[[[1, 2, 3]]]", "expected a string, found 1"),
    "list": ("7", "expected a list"),
})  # fmt: skip
def test_damaged_origins_are_refused(tmp_path: Path, origins: str, message: str) -> None:
    graph = Graph("net")
    graph.set_outputs(call(graph, "sin.default", graph.add_input("x", F32), name="sin"))
    graph.track_origins()
    graph.rename(graph.nodes[0].outputs[0], "sine")
    save_ir(graph, tmp_path / "net.json")
    text = (tmp_path / "net.json").read_text(encoding="utf-8")
    written = '[[["sin", "", ""]]]'
    assert text.count(written) == 1
    (tmp_path / "net.json").write_text(text.replace(written, origins), encoding="utf-8")

    with pytest.raises(SerializationError, match=message):
        load_ir(tmp_path / "net.json")


def test_origins_are_no_part_of_equality_nor_of_the_text_form() -> None:
    graph = rewritten()

    parsed = parse_ir(str(graph))

    assert parsed == graph
    assert not parsed.tracks_origins
    assert all(value.is_original for value in parsed.values)


def test_regions_keep_their_own_record() -> None:
    def branch(x: Any) -> Any:
        return torch.cond(x.sum() > 0, lambda a: a.sin().exp(), lambda a: a.cos(), (x,))

    graph = captured(branch)
    region = next(part for part in graph.graphs() if part.owner is not None)
    assert region.tracks_origins

    node = region.nodes[-1]
    region.replace_all_uses(node.outputs[0], call(region, "neg.default", node.inputs[0]))

    copied = next(part for part in graph.clone().graphs() if part.owner is not None)
    assert record(copied) == record(region)
    assert names(region.outputs[0]) == [node.outputs[0].name]
