"""The published JSON Schema and the documents that are written agree."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from npu_ir import SerializationError, load_ir, parse_ir, save_ir
from tests.support.rows import each_row
from tests.support.schema import SCHEMA, VALIDATOR

# Symbols, constraints, numbers, layouts, regions in regions, and a dict among the attributes.
TEXT = """
graph Everything {
  symbol s0 in [2, 64]
  symbol u0 in [0, inf]
  symbol d in [-inf, inf]
  require mod(s0, 2) == 0
  require 4*s0 != 8
  require 1.5*s0 >= 2.5
  input %x: f32[s0, 2*s0+1]
  input %t: f32[s0, 4]@[1, s0]
  input %sparse: f32[s0, 3]@sparse_coo
  input %n: int(d)
  input %flag: bool
  param %w: f32[3]
  state %w.exp_avg: f32[3]
  call (%x, %t, %sparse, %n, %flag)

  prologue {
    %half: f32[3] = aten.mul.Tensor(self=%w) {other=0.5}
  }
  %k: int(u0) = aten.sym_size.int(self=%x) {dim=1}
  %y: f32[s0, 4] = higher_order.cond(pred=%flag, operands=(%t))
  region true_fn = graph yes {
    input %t: f32[s0, 4]
    const %c: f32[2] = [1.0, 2.0]

    %loop: f32[s0, 4] = my.loop(carried=%t) {options={"unroll": 2, "dtype": f32}}
    region body = graph body {
      input %t: f32[s0, 4]

      return (%t,)
    }

    return (%loop,)
  }
  region false_fn = graph no {
    input %t: f32[s0, 4]

    return (%t,)
  }

  return (%y, %k)
}
"""


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_a_document_with_symbols_and_regions_fits_the_schema(tmp_path: Path) -> None:
    save_ir(parse_ir(TEXT), tmp_path / "graph.json")
    document = json.loads((tmp_path / "graph.json").read_text())

    VALIDATOR.validate(document)

    assert load_ir(tmp_path / "graph.json") == parse_ir(TEXT)
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
    save_ir(parse_ir(TEXT), tmp_path / "graph.json")
    damaged = json.loads((tmp_path / "graph.json").read_text())
    damage(damaged)
    (tmp_path / "graph.json").write_text(json.dumps(damaged))

    assert not VALIDATOR.is_valid(damaged)
    with pytest.raises(SerializationError, match="graph.json: "):
        load_ir(tmp_path / "graph.json")
