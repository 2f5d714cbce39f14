"""Output, files and exit code of ``npu diff``."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from npu_ir import parse_ir, save_ir
from tests.support.rows import each_row

Command = Callable[..., str]
TEXT = """graph Net {
  input %x: f32[2]

  %relu: f32[2] = aten.relu.default(self=%x)
  %neg: f32[2] = aten.neg.default(self=%relu)

  return %neg
}
"""


@pytest.fixture(autouse=True)
def _graphs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    save_ir(parse_ir(TEXT), "a.json")
    Path("a.ir").write_text(TEXT)
    Path("b.ir").write_text(TEXT.replace("aten.neg", "aten.abs").replace("%relu", "%first"))


@pytest.mark.smoke
def test_graphs_that_differ_in_names_only_are_the_same(npu: Command) -> None:
    Path("c.ir").write_text(TEXT.replace("%relu", "%first"))

    assert npu("diff a.json c.ir") == "a and b are the same graph, but for names: relu -> first\n"


def test_graphs_that_differ_have_lines_of_both_and_the_exit_code_1(npu: Command) -> None:
    assert npu("diff a.json b.ir", code=1) == (
        "--- a: Net, 2 nodes\n"
        "+++ b: Net, 2 nodes\n"
        "  ... 1 unchanged node\n"
        "- %neg: f32[2] = aten.neg.default(self=%relu)\n"
        "+ %neg: f32[2] = aten.abs.default(self=%first)  # changed: op\n"
        "\n"
        "a and b differ: nodes 2 -> 2: 0 removed, 0 added, 1 changed, 1 unchanged\n"
        "ops: aten.abs.default 0 -> 1, aten.neg.default 1 -> 0\n"
        "1 renamed: relu -> first\n"
    )
    assert npu("diff a.json b.ir --summary", code=1).startswith("a and b differ: nodes 2 -> 2")


def test_json_has_all_of_it(npu: Command) -> None:
    data = json.loads(npu("diff a.json b.ir --json -o diff.svg", code=1))

    assert data["counts"] == {"unchanged": 1, "removed": 0, "added": 0, "changed": 1, "merged": 0}
    assert [(node["status"], node["name"], node["changes"]) for node in data["nodes"]] == [
        ("changed", "neg", ["op"])
    ]
    assert Path("diff.svg").exists()


def test_a_picture_is_written(npu: Command) -> None:
    assert npu("diff a.ir b.ir -o diff.svg --max-nodes 5", code=1).endswith("wrote diff.svg\n")
    assert "~ " in Path("diff.svg").read_text(encoding="utf-8")


@each_row("command, code, problem", [
    ("diff a.json c.ir", 1, "the graph cannot be read: No such file or directory (at c.ir)"),
    ("diff a.json x.bin", 1, "the graph cannot be read: it is not text (at x.bin)"),
    ("diff a.json x.ir", 1, "expected 'graph', got 'what' (at x.ir, line 1"),
    ("diff a.ir b.ir -o c.svg --max-nodes 1", 2, "'1' is not a number from 2 on"),
    ("diff a.ir b.ir --max-nodes 9", 2, "--max-nodes is for drawings"),
])  # fmt: skip
def test_what_cannot_be_compared_is_refused(command: str, code: int, problem: str, npu: Command) -> None:
    Path("x.bin").write_bytes(b"\xff\xfe\x00")
    Path("x.ir").write_text("what is this")

    assert problem in npu(command, code=code)
