"""``--html`` of ``npu show`` and ``npu diff``."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from npu_ir import diff_ir, load_ir, parse_ir, save_ir, to_html
from tests.support.rows import each_row

Command = Callable[..., str]
TEXT = "graph Net { input %x: f32[2] %y: f32[2] = aten.relu.default(self=%x) return %y }"
STEP = {
    "name": "y",
    "nodes": ["y"],
    "seconds": 1,
    "backend": "aten",
    "kernel": "",
    "bytes_read": 0,
    "bytes_written": 0,
}


@pytest.fixture(autouse=True)
def _files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    save_ir(parse_ir(TEXT), "a.json")
    save_ir(parse_ir(TEXT.replace("relu", "neg")), "b.json")
    Path("time.json").write_text(json.dumps({"call_seconds": 1, "steps": [STEP]}))


def test_show_writes_a_page_with_overlays(npu: Command) -> None:
    assert npu("show a.json --html net.html --overlay time.json") == "wrote net.html\n"

    assert Path("net.html").read_text("utf-8") == to_html(load_ir("a.json"), overlays=["time.json"])


def test_diff_writes_a_page_with_overlays_of_the_graph_that_they_fit(npu: Command) -> None:
    assert npu("diff a.json b.json --html diff.html --overlay time.json", code=1).endswith(
        "wrote diff.html\n"
    )

    diff = diff_ir(load_ir("a.json"), load_ir("b.json"))
    assert Path("diff.html").read_text("utf-8") == to_html(diff, overlays=["time.json"])


def test_the_json_of_a_difference_stays_json_beside_a_page(npu: Command) -> None:
    assert json.loads(npu("diff a.json b.json --json --html diff.html", code=1))

    assert Path("diff.html").exists()


@each_row(
    "line, problem",
    {
        "another ending": (
            "show a.json --html net.txt",
            "a page is written to a file that ends in .html\n  fix: write --html net.html",
        ),
        "no folder": ("show a.json --html no/net.html", "--html no/net.html: there is no folder no"),
        "two forms": ("show a.json --html net.html --dot", "not allowed with argument"),
        "overlay alone": (
            "show a.json --overlay time.json",
            "--overlay is for pages\n  fix: add --html FILE.html",
        ),
        "overlay alone in diff": ("diff a.json b.json --overlay time.json", "--overlay is for pages"),
        "provenance": ("show a.json --html net.html --provenance", "--provenance is for the text form"),
        "depth": ("show a.json --html net.html --depth 1", "--depth is for drawings"),
    },
)
def test_options_that_do_not_fit_a_page_are_refused(line: str, problem: str, npu: Command) -> None:
    assert problem in npu(line, code=2)
    assert not Path("net.html").exists()


def test_an_overlay_that_is_none_is_an_error(npu: Command) -> None:
    assert "it is not an overlay" in npu("show a.json --html net.html --overlay a.json", code=1)
    assert not Path("net.html").exists()
