"""Control characters in the names of a graph: commands show them, and a terminal does not obey them."""

from pathlib import Path

import pytest

from npu_ir.cli import main
from tests.support.hostile_names import CONTROLS, save_hostile_graph
from tests.support.rows import each_row


@each_row("command, code", [
    ("run net.json", 0),
    ("explain net.json", 0),
    ("explain net.json --fail-under 100", 1),
    ("opt net.json --explain", 0),
    ("opt net.json --stats --check", 0),
    ("opt net.json --bisect", 0),
    ("compare net.json other.json", 1),
    ("profile net.json --repeat 1", 0),
    ("bench net.json --repeat 1 --peers none", 0),
    ("tune net.json --repeat 1", 0),
])  # fmt: skip
def test_names_are_shown_and_not_obeyed(
    command: str,
    code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    save_hostile_graph(tmp_path / "net.json")
    save_hostile_graph(tmp_path / "other.json", alpha=2)
    monkeypatch.chdir(tmp_path)

    assert main(command.split()) == code

    printed = "".join(capsys.readouterr())
    assert "[31mred" in printed
    assert not CONTROLS.search(printed)
