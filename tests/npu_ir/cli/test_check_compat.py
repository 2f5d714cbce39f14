"""Output, files and exit code of ``npu check-compat``."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from npu_ir import load_ir, parse_ir, save_ir

Command = Callable[..., str]
TEXT = """graph Net {
  input %x: f32[2]

  %add: f32[2] = aten.add.Tensor(self=%x, other=%x)
  %relu: f32[2] = aten.relu.default(self=%add)

  return %relu
}
"""


@pytest.fixture(autouse=True)
def _graphs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    save_ir(parse_ir(TEXT), "same.json")
    text = Path("same.json").read_text()
    Path("old.json").write_text(text.replace("Scalar alpha=1", "Scalar alpha=2"))
    Path("gone.json").write_text(text.replace("aten.relu.default", "aten.relu.Gone"))


@pytest.mark.smoke
def test_a_compatible_graph_has_the_exit_code_0(npu: Command) -> None:
    assert "op types: 2 unchanged" in npu("check-compat same.json")


def test_a_changed_default_has_the_exit_code_1_and_a_fix(npu: Command) -> None:
    printed = npu("check-compat old.json", code=1)

    assert printed.endswith(
        "op types: 1 unchanged, 1 can be migrated\n"
        "aten.add.Tensor: can be migrated\n"
        "  'alpha' had the default 2, and has 1 (1 of its nodes: add)\n"
        "    fix: npu check-compat FILE -o NEW writes alpha=2 where it is left out\n"
    )


def test_the_migrated_graph_is_written(npu: Command) -> None:
    assert npu("check-compat old.json -o new.json").endswith("wrote new.json\n")

    assert load_ir("new.json").node("add").attrs == {"alpha": 2}
    assert "2 unchanged" in npu("check-compat new.json")


def test_nothing_is_written_if_an_op_cannot_be_migrated(npu: Command) -> None:
    printed = npu("check-compat gone.json -o new.json", code=1)

    assert "npu: error: aten.relu.Gone cannot be migrated: there is no overload 'Gone'" in printed
    assert not Path("new.json").exists()


def test_json_has_every_op(npu: Command) -> None:
    data = json.loads(npu("check-compat old.json --json", code=1))

    assert [(op["op"], op["verdict"]) for op in data["ops"]] == [
        ("aten.add.Tensor", "can be migrated"),
        ("aten.relu.default", "unchanged"),
    ]


def test_wrong_usage_has_the_exit_code_2(npu: Command) -> None:
    printed = npu("check-compat same.json -o no/new.json", code=2)

    assert "--output no/new.json: there is no folder no" in printed
