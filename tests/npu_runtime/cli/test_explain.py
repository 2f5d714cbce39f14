"""Output, files and exit code of ``npu explain``."""

import json
from pathlib import Path

import pytest
import torch

from npu_ir import extract_ir, save_ir
from npu_ir.cli import main
from npu_ir.cli.json_output import write_json
from npu_ir.errors import SerializationError
from npu_ir.plugins import plugin_manager
from tests.support.backends.picky_backends import Net, Picky, Smooth

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _backends(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for backend in (Picky(), Smooth()):
        monkeypatch.setitem(plugin_manager.get_plugins().backends, backend.name, backend)
    monkeypatch.chdir(tmp_path)
    model = Net()
    graph = extract_ir(model, (torch.randn(5, 3),))
    save_ir(graph, "bare.json")
    save_ir(graph, "net.json", weights=model.state_dict())


def explain(*words: str) -> int:
    return main(["explain", *words])


def test_every_node_is_listed_with_totals_and_reasons(capsys: Capture) -> None:
    assert explain("bare.json", "--backend", "picky", "--backend", "smooth") == 0

    printed = capsys.readouterr().out
    assert printed.startswith("graph Net: 5 nodes; asked: picky, smooth, aten\n")
    assert "smooth      1      it is not smooth " in printed
    backends = [line.split()[2] for line in printed.splitlines()[-5:]]
    assert backends == ["aten", "picky", "smooth", "picky", "picky"]


def test_passes_run_first_unless_there_are_to_be_none(capsys: Capture) -> None:
    for passes, op in (
        ("none", "aten.linear.default"),
        ("default", "aten.linear.default"),
        ("fuse-linear-activation", "npu.linear"),
    ):
        assert explain("bare.json", "--backend", "picky", "--passes", passes) == 0
        assert op in capsys.readouterr().out, passes


def test_open_sizes_are_explained_for_the_sizes_that_are_given(capsys: Capture) -> None:
    rows = ({0: torch.export.Dim("rows", min=2, max=9)},)
    save_ir(extract_ir(Net(), (torch.randn(5, 3),), dynamic_shapes=rows), "open.json")

    assert explain("open.json", "--backend", "picky") == 0
    assert "which --size rows=N explains" in capsys.readouterr().out

    assert explain("open.json", "--backend", "picky", "--size", "rows=5") == 0
    assert "rows" not in capsys.readouterr().out

    assert explain("open.json", "--backend", "picky", "--size", "rows=1") == 1
    assert "symbol 'rows' cannot be 1" in capsys.readouterr().err


def test_all_of_it_is_written_as_json(capsys: Capture) -> None:
    assert explain("bare.json", "--backend", "picky", "--json", "explained.json") == 0

    data = json.loads(Path("explained.json").read_text())
    assert data["totals"]["picky"] == {"count": 3, "parts": 2, "flops": 200, "seconds": None}
    assert len(data["nodes"]) == 5


def test_the_exit_code_says_whether_the_backends_run_enough(capsys: Capture) -> None:
    for words, code, verdict in (
        ("--backend aten --fail-under 100", 0, "aten: 100.0% of the FLOPs, at least 100%"),
        ("--backend picky --fail-under 100", 0, "picky: 100.0% of the FLOPs, at least 100%"),
        ("--backend picky --fail-under 60 --by count", 0, "60.0% of the nodes, at least 60%"),
        ("--backend picky --fail-under 60.5 --by count", 1, "60.0% of the nodes, less than 60.5%"),
        (
            "--backend picky --backend smooth --fail-under 80 --by count",
            0,
            "picky and smooth: 80.0% of the nodes, at least 80%",
        ),
        ("--backend picky --time --fail-under 100 --by time", 1, "% of the time, less than 100%"),
    ):
        assert explain("bare.json", *words.split()) == code, words
        assert verdict in capsys.readouterr().out.splitlines()[-1]


def test_a_timed_run_says_what_it_ran_on(capsys: Capture) -> None:
    assert explain("net.json", "--backend", "picky", "--time") == 0

    printed = capsys.readouterr().out
    assert "weights      net.weights.safetensors, saved with the graph" in printed
    assert "random data  %x: f32[5, 3], seed 0" in printed
    assert " us " in printed


def test_what_makes_no_sense_is_wrong_usage(capsys: Capture) -> None:
    for words, message in (
        ("--by count", "--by is for --fail-under"),
        ("--fail-under 5 --by time", "--by time needs times\n  fix: add --time"),
        ("--seed 1", "nothing is run without --time"),
        ("--weights w.pt", "nothing is run without --time"),
        ("--input x=f32[2]", "nothing is run without --time"),
        ("--json no/folder.json", "--json no/folder.json: there is no folder no"),
        ("--fail-under many", "'many' is not a number"),
        ("--fail-under 120", "'120' is not a percentage from 0 to 100"),
        ("--passes no-such-pass", "there is no pass 'no-such-pass'"),
        ("--passes no-such-pass --time", "there is no pass 'no-such-pass'"),
        ("--backend smoth", "there is no backend 'smoth' (did you mean 'smooth'?)"),
        ("--backend nowhere --time", "there is no backend 'nowhere'"),
    ):
        assert explain("bare.json", "--backend", "picky", *words.split()) == 2, words
        assert message in capsys.readouterr().err, words


def test_a_backend_without_its_device_is_said(capsys: Capture) -> None:
    assert explain("bare.json", "--backend", "picky", "--backend", "smooth", "--time") == 1
    assert "'smooth' cannot run here" in capsys.readouterr().err


def test_what_cannot_be_written_after_all_is_said(tmp_path: Path) -> None:
    with pytest.raises(SerializationError, match="the explanation cannot be written: No such file"):
        write_json({}, tmp_path / "no" / "explained.json", "the explanation")
