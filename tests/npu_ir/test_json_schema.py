"""The published JSON Schema and the documents that are written agree."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from npu_ir import SerializationError, load_ir, parse_ir, save_ir

SCHEMA = json.loads(
    (resources.files("npu_ir") / "schema" / "npu-ir-1.schema.json").read_text(encoding="utf-8")
)
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)

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


@pytest.fixture
def document(tmp_path: Path) -> Any:
    save_ir(parse_ir(TEXT), tmp_path / "graph.json")
    return json.loads((tmp_path / "graph.json").read_text())


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_a_document_with_symbols_and_regions_fits_the_schema(document: Any) -> None:
    VALIDATOR.validate(document)

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


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(put("symbols", "s0", to=[2]), id="a range without an end"),
        pytest.param(put("symbols", "s0", to=[2, "64"]), id="a range of strings"),
        pytest.param(put("symbols", "2x", to=[0, 1]), id="a symbol that is no identifier"),
        pytest.param(put("constraints", 0, 1, to="="), id="a relation that is none"),
        pytest.param(put("constraints", 0, to=["s0", "=="]), id="half a constraint"),
        pytest.param(put("arguments", 0, "type", to=["f32", ["s0", 1.5]]), id="a size that is a fraction"),
        pytest.param(put("arguments", 0, "type", to=["f32", ["s0", -1]]), id="a negative size"),
        pytest.param(put("arguments", 2, "type", 2, to=7), id="a layout that is a number"),
        pytest.param(put("arguments", 3, "type", to={"float": "d"}), id="a float that is known"),
        pytest.param(put("arguments", 3, "type", to={"int": None}), id="an integer that is nothing"),
        pytest.param(put("prologue", to=-1), id="a negative number of nodes"),
        pytest.param(put("prologue", to="1"), id="a number of nodes as a string"),
        pytest.param(put("prologue", to=None), id="no number of nodes"),
        pytest.param(put("nodes", 2, "regions", "true_fn", "prologue", to=1), id="a region with a prologue"),
        pytest.param(put("nodes", 2, "regions", "true_fn", "updates", to=[]), id="a region with updates"),
        pytest.param(
            put("nodes", 2, "regions", "true_fn", "arguments", 0, "kind", to="param"),
            id="a region with a parameter",
        ),
        pytest.param(put("nodes", 2, "regions", "true_fn", to=[]), id="a region that is a list"),
        pytest.param(
            put("nodes", 2, "regions", "true_fn", "nodes", 0, "attrs", "options", "dict", 0, to=[1, 2]),
            id="a key that is no string",
        ),
    ],
)
def test_what_the_schema_refuses_does_not_load(
    damage: Callable[[Any], None], document: Any, tmp_path: Path
) -> None:
    damaged = copy.deepcopy(document)
    damage(damaged)
    (tmp_path / "graph.json").write_text(json.dumps(damaged))

    assert not VALIDATOR.is_valid(damaged)
    with pytest.raises(SerializationError, match="graph.json: "):
        load_ir(tmp_path / "graph.json")
