"""``--json [FILE]``: the same of every command, on stdout in place of the text or in a file beside it."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.rows import each_row

MODEL = """
import torch
Net = lambda: torch.nn.Linear(3, 2)
"""
COMMANDS = [
    "bench net.json --repeat 1 --peers none", "check-compat net.json", "compare net.json",
    "diff net.json net.json", "doctor", "explain net.json", "explain net.json --fail-under 0",
    "info net.json", "opt net.json", "passes", "plugins", "plugins --doctor", "profile net.json --repeat 1",
]  # fmt: skip


@pytest.fixture(autouse=True)
def _files(npu: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("net.py").write_text(MODEL)
    npu("extract net.py:Net --input 'f32[2, 3]' -o net.json")


@each_row("command", COMMANDS)
def test_json_takes_the_place_of_the_text_or_is_written_beside_it(
    command: str, npu: Callable[..., str]
) -> None:
    printed = npu(f"{command} --json")
    text = npu(f"{command} --json report.json")

    assert json.loads(printed).__class__ is json.loads(Path("report.json").read_text()).__class__
    assert text
    assert not text.startswith(("{", "["))


def test_a_word_that_is_no_file_of_json_is_not_taken_for_one(npu: Callable[..., str]) -> None:
    printed = npu("passes --json cse", code=2)

    assert "--json cse: a file of JSON has a name that ends in .json" in printed
    assert "fix: write --json cse.json; or --json behind all else, to print it" in printed
    assert not Path("cse").exists()


def test_a_report_does_not_replace_the_graph_that_is_read(npu: Callable[..., str]) -> None:
    before = Path("net.json").read_bytes()

    assert "--json net.json: this file is read" in npu("info net.json --json net.json", code=2)
    assert Path("net.json").read_bytes() == before


def test_a_file_that_json_took_for_its_own_is_told(npu: Callable[..., str]) -> None:
    printed = npu("info --json net.json", code=2)

    assert "the following arguments are required: FILE" in printed
    assert "fix: write --json last: a word behind it is the FILE that it writes" in printed
