"""``npu bench`` with other runtimes: their rows, notes and numbers, and their choice."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from npu_ir import extract_ir, save_ir
from npu_ir.cli import main
from npu_runtime.interop.peers import PEERS, Peer
from tests.support.peers import fake_peer, refusing_peer, without_peers

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    without_peers(monkeypatch)
    save_ir(extract_ir(torch.nn.Sigmoid(), (torch.ones(3, 4),)), "net.json")


@pytest.fixture
def peers(monkeypatch: pytest.MonkeyPatch) -> dict[str, Peer]:
    """Peers that agree, are off by a little, by much and beyond any number, refuse, and are not installed."""
    made = {
        "same": fake_peer("Same"),
        "near": fake_peer("Near", lambda result: result * 1.001),
        "far": fake_peer("Far", lambda result: result * 1.5),
        "nan": fake_peer("NaN", lambda result: result * torch.nan),
        "cold": refusing_peer("Cold", RuntimeError("no kernel for sigmoid\nhere")),
        "absent": Peer("Absent", ("torch", "no_such_package"), fake_peer().convert, fake_peer().compile),
    }
    for name, peer in made.items():
        monkeypatch.setitem(PEERS, name, peer)
    return made


def bench(*words: str) -> int:
    return main(["bench", "net.json", "--passes", "none", "--repeat", "2", *words])


def table(printed: str) -> dict[str, list[str]]:
    """Return the columns from the ratio on, by runner."""
    lines = printed.split("\n\n", maxsplit=1)[0].splitlines()
    return {line.split()[0]: line.partition("x ")[2].split() for line in lines[1:]}


@pytest.mark.usefixtures("peers")
def test_installed_peers_have_rows_with_their_differences_and_others_a_note(capsys: Capture) -> None:
    assert bench() == 0

    printed, errors = capsys.readouterr()
    found = table(printed)
    assert list(found) == ["interpreter", "executor", "Same", "Near", "Far", "NaN"]
    assert [cells[:1] for cells in found.values()] == [
        [],
        ["none"],
        ["none"],
        ["1.0e-03"],
        ["5.0e-01"],
        ["undefined"],
    ]
    assert all(len(cells) == 3 for name, cells in found.items() if name != "interpreter"), "time until ready"
    assert printed.split("\n\n")[1].splitlines() == [
        "Cold cannot run this graph: RuntimeError: no kernel for sigmoid",
        "Far gives other results, off by 0.5 of the largest value",
        "NaN gives NaN, infinities or shapes that the interpreter does not",
    ]
    assert errors == ""


@pytest.mark.usefixtures("peers")
def test_their_numbers_are_in_the_file(capsys: Capture) -> None:
    assert bench("--json", "bench.json") == 0

    data: dict[str, Any] = json.loads(Path("bench.json").read_text())
    assert list(data["timings"]) == ["interpreter", "executor", "same", "near", "far", "nan"]
    assert {name: item.get("difference") for name, item in data["peers"].items()} == {
        "same": 0,
        "near": pytest.approx(0.001, rel=1e-3),
        "far": pytest.approx(0.5),
        "nan": None,
        "cold": None,
    }
    assert data["peers"]["same"]["compile_seconds"] > 0
    assert data["peers"]["cold"] == {
        "error": "Cold cannot run this graph: RuntimeError: no kernel for sigmoid"
    }
    assert data["difference"] == 0


@pytest.mark.usefixtures("peers")
def test_peers_are_chosen_or_left_out(capsys: Capture) -> None:
    for words, names in (("far,same", ["Far", "Same"]), ("none", [])):
        assert bench("--peers", words) == 0, words

        assert list(table(capsys.readouterr().out)) == ["interpreter", "executor", *names], words


@pytest.mark.usefixtures("peers")
def test_a_peer_that_cannot_be_is_refused(capsys: Capture) -> None:
    for words, message in (
        ("same,other", "there is no peer 'other'\n  fix: name same, near, far, nan, cold, absent, or none"),
        ("absent", "Absent cannot run: no_such_package is not installed"),
        ("absent", "fix: python -m pip install torch no_such_package"),
    ):
        assert bench("--peers", words) == 2, words

        assert message in capsys.readouterr().err, words


def test_all_get_the_same_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, before = [], torch.get_num_threads()

    def compiled(form: Any, threads: int) -> Any:
        asked.append(threads)
        return fake_peer().compile(form, threads)

    monkeypatch.setitem(PEERS, "fake", Peer("Fake", (), fake_peer().convert, compiled))
    for words in ([], ["--threads", str(before + 1)]):
        assert bench(*words) == 0

    assert sorted({*asked}) == [before, before + 1]
