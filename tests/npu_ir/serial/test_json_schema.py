"""The published JSON Schema and the documents that are written agree."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from npu_ir import SerializationError, load_ir, parse_ir, save_ir
from tests.support.full_text import FULL_TEXT
from tests.support.rows import each_row
from tests.support.schema import SCHEMA, VALIDATOR


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_a_document_with_symbols_and_regions_fits_the_schema(tmp_path: Path) -> None:
    save_ir(parse_ir(FULL_TEXT), tmp_path / "graph.json")
    document = json.loads((tmp_path / "graph.json").read_text())

    VALIDATOR.validate(document)

    assert load_ir(tmp_path / "graph.json") == parse_ir(FULL_TEXT)
    assert document["symbols"] == {"s0": [2, 64], "u0": [0, None], "d": [None, None]}
    assert document["constraints"] == [["mod(s0, 2)", "==", 0], ["4*s0", "!=", 8], ["1.5*s0", ">=", 2.5]]
    assert [row["type"] for row in document["arguments"][:4]] == [
        ["f32", ["s0", "2*s0+1"]],
        ["f32", ["s0", 4], [1, "s0"]],
        ["f32", ["s0", 3], "sparse_coo"],
        {"int": "d"},
    ]
    assert document["prologue"] == 1
    inner = document["nodes"][2]["regions"]["true_fn"]["nodes"][0]
    assert inner["attrs"] == {"options": {"dict": [["unroll", 2], ["dtype", {"dtype": "f32"}]]}}
    assert inner["regions"]["body"]["name"] == "body"


def put(*path: str | int, to: Any) -> Callable[[Any], None]:
    """Return a change of the entry at ``path``."""

    def change(document: Any) -> None:
        for step in path[:-1]:
            document = document[step]
        document[path[-1]] = to

    return change


@each_row("damage", [
    put("symbols", "s0", to=[2]),
    put("symbols", "s0", to=[2, "64"]),
    put("symbols", "2x", to=[0, 1]),
    put("constraints", 0, 1, to="="),
    put("constraints", 0, to=["s0", "=="]),
    put("arguments", 0, "type", to=["f32", ["s0", 1.5]]),
    put("arguments", 0, "type", to=["f32", ["s0", -1]]),
    put("arguments", 2, "type", 2, to=7),
    put("arguments", 3, "type", to={"float": "d"}),
    put("arguments", 3, "type", to={"int": None}),
    put("prologue", to=-1),
    put("prologue", to="1"),
    put("prologue", to=None),
    put("nodes", 2, "regions", "true_fn", "prologue", to=1),
    put("nodes", 2, "regions", "true_fn", "updates", to=[]),
    put("nodes", 2, "regions", "true_fn", "arguments", 0, "kind", to="param"),
    put("nodes", 2, "regions", "true_fn", to=[]),
    put("nodes", 2, "regions", "true_fn", "nodes", 0, "attrs", "options", "dict", 0, to=[1, 2]),
])  # fmt: skip
def test_what_the_schema_refuses_does_not_load(damage: Callable[[Any], None], tmp_path: Path) -> None:
    save_ir(parse_ir(FULL_TEXT), tmp_path / "graph.json")
    damaged = json.loads((tmp_path / "graph.json").read_text())
    damage(damaged)
    (tmp_path / "graph.json").write_text(json.dumps(damaged))

    assert not VALIDATOR.is_valid(damaged)
    with pytest.raises(SerializationError, match="graph.json: "):
        load_ir(tmp_path / "graph.json")
