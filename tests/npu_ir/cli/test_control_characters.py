"""Control characters in the names of a graph: commands show them, and a terminal does not obey them."""

import json
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from npu_ir.cli import failures
from npu_ir.errors import CaptureWarning
from tests.support.hostile_names import CONTROLS, HOSTILE, save_hostile_graph
from tests.support.rows import each_row

Command = Callable[..., str]


@pytest.fixture(autouse=True)
def graphs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_hostile_graph(tmp_path / "net.json")
    save_hostile_graph(tmp_path / "other.json", alpha=2)
    monkeypatch.chdir(tmp_path)


@each_row("command, code", [
    ("info net.json", 0),
    ("show net.json", 0),
    ("show net.json --dot", 0),
    ("show net.json --mermaid", 0),
    ("run net.json --on interpreter", 0),
    ("run net.json --on interpreter -i y=3", 2),
    ("run net.json --on interpreter -i y=3 --debug", 2),
    ("diff net.json other.json", 1),
])  # fmt: skip
def test_names_are_shown_and_not_obeyed(command: str, code: int, npu: Command) -> None:
    printed = npu(command, code=code)

    assert "[31mred" in printed
    assert not CONTROLS.search(printed)


def test_json_has_the_names_as_they_are(npu: Command) -> None:
    assert json.loads(npu("info net.json --json"))["name"] == HOSTILE


def test_a_warning_shows_them(capsys: pytest.CaptureFixture[str]) -> None:
    with failures._formatted_warnings():
        written = warnings.formatwarning(HOSTILE, CaptureWarning, "net.py", 3)
    failures.warn(HOSTILE)

    printed = written + capsys.readouterr().err
    assert printed.count("red") == 2
    assert not CONTROLS.search(printed)
