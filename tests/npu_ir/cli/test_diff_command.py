"""Output, files and exit code of ``npu diff``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from npu_ir import Graph, parse_ir, save_ir
from npu_ir.cli import main
from tests.support.rows import each_row

TEXT = """graph Net {
  input %x: f32[2]

  %relu: f32[2] = aten.relu.default(self=%x)
  %neg: f32[2] = aten.neg.default(self=%relu)

  return %neg
}
"""


@pytest.fixture(autouse=True)
def _in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    graph: Graph = parse_ir(TEXT)
    save_ir(graph, "a.json")
    Path("a.ir").write_text(TEXT)
    Path("b.ir").write_text(TEXT.replace("aten.neg", "aten.abs").replace("%relu", "%first"))


@pytest.mark.smoke
def test_graphs_that_differ_in_names_only_are_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    Path("c.ir").write_text(TEXT.replace("%relu", "%first"))

    assert main(["diff", "a.json", "c.ir"]) == 0

    assert capsys.readouterr().out == "a and b are the same graph, but for names: relu -> first\n"


def test_graphs_that_differ_have_lines_of_both_and_the_exit_code_1(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["diff", "a.json", "b.ir"]) == 1

    assert capsys.readouterr().out == (
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


def test_the_summary_has_no_lines_of_graphs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", "a.json", "b.ir", "--summary"]) == 1

    assert capsys.readouterr().out.startswith("a and b differ: nodes 2 -> 2")


def test_json_has_all_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", "a.json", "b.ir", "--json", "-o", "diff.svg"]) == 1

    data = json.loads(capsys.readouterr().out)
    assert data["counts"] == {"unchanged": 1, "removed": 0, "added": 0, "changed": 1, "merged": 0}
    assert [(node["status"], node["name"], node["changes"]) for node in data["nodes"]] == [
        ("changed", "neg", ["op"])
    ]
    assert Path("diff.svg").exists()


def test_a_picture_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", "a.ir", "b.ir", "-o", "diff.svg", "--max-nodes", "5"]) == 1

    assert capsys.readouterr().out.endswith("wrote diff.svg\n")
    assert "~ " in Path("diff.svg").read_text(encoding="utf-8")


@each_row("arguments, problem, code", [
    (["a.json", "c.ir"], "the graph cannot be read: No such file or directory (at c.ir)", 1),
    (["a.json", "x.bin"], "the graph cannot be read: it is not text (at x.bin)", 1),
    (["a.json", "x.ir"], "expected 'graph', got 'what' (at x.ir, line 1", 1),
    (["a.ir", "b.ir", "-o", "c.svg", "--max-nodes", "1"], "'1' is not a number from 2 on", 2),
    (["a.ir", "b.ir", "--max-nodes", "9"], "--max-nodes is for drawings", 2),
])  # fmt: skip
def test_what_cannot_be_compared_is_refused(
    arguments: list[str], problem: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("x.bin").write_bytes(b"\xff\xfe\x00")
    Path("x.ir").write_text("what is this")

    assert main(["diff", *arguments]) == code

    assert problem in capsys.readouterr().err
