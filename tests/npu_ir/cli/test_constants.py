"""Tensors outside the ``state_dict`` on the command line; ``npu run`` and ``npu info`` of large graphs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from npu_ir import Graph, TensorType, extract_ir, save_ir
from npu_ir.cli import main
from tests.support.rows import each_row

Capture = pytest.CaptureFixture[str]

MODEL = """
import torch

class Scaled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(2, 2)
        self.register_buffer("frequencies", torch.arange(1.0, 3.0), persistent=False)
        self.shift = torch.ones(2)

    def forward(self, x):
        return self.linear(x) * self.frequencies + self.shift

def on_meta():
    with torch.device("meta"):
        return Scaled()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Holds a graph whose constants have no data, one that was made with --meta, weights, and constants."""
    folder = tmp_path_factory.mktemp("constants")
    (folder / "scaled.py").write_text(MODEL)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "path", [*sys.path])
        assert main(["extract", "scaled.py:on_meta", "-i", "f32[1, 2]", "-o", "bare.json"]) == 0
        assert main(["extract", "scaled.py:Scaled", "-i", "f32[1, 2]", "-o", "full.json", "--meta"]) == 0
    save_file({"linear.weight": torch.eye(2), "linear.bias": torch.zeros(2)}, folder / "w.safetensors")
    save_file({"frequencies": torch.tensor([3.0, 5.0]), "shift": torch.zeros(2)}, folder / "c.safetensors")
    yield folder
    sys.modules.pop("scaled", None)


@pytest.fixture(autouse=True)
def _in_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [*sys.path])


WEIGHTS, CONSTANTS = ["--weights", "w.safetensors"], ["--constants", "c.safetensors"]


@pytest.fixture
def one(tmp_path: Path) -> list[str]:
    torch.save(torch.ones(1, 2), tmp_path / "x.pt")
    return ["-i", f"x=@{tmp_path / 'x.pt'}"]


def test_run_takes_constants_from_a_file(one: list[str], capsys: Capture) -> None:
    code = main(["run", "bare.json", *WEIGHTS, *CONSTANTS, *one])

    printed = capsys.readouterr().out
    assert code == 0
    assert "[[3, 5]]" in printed
    assert "w.safetensors; constants of c.safetensors" in printed


def test_a_graph_made_with_meta_runs_from_its_weights_alone(one: list[str], capsys: Capture) -> None:
    assert main(["run", "full.json", *WEIGHTS, *one]) == 0

    assert "[[2, 3]]" in capsys.readouterr().out


def test_constants_take_the_place_of_those_in_the_graph(one: list[str], capsys: Capture) -> None:
    assert main(["run", "full.json", *WEIGHTS, *CONSTANTS, *one]) == 0

    assert "[[3, 5]]" in capsys.readouterr().out


@each_row("command", [["run", "bare.json"], ["verify", "bare.json", "scaled.py:Scaled"]])
def test_constants_do_not_replace_weights_in_silence(
    command: list[str], tmp_path: Path, capsys: Capture
) -> None:
    tensors = {"linear.weight": torch.ones(2, 2), "frequencies": torch.ones(2), "shift": torch.zeros(2)}
    save_file(tensors, tmp_path / "both.safetensors")

    assert main([*command, *WEIGHTS, "--constants", str(tmp_path / "both.safetensors")]) == 2

    assert (
        "linear.weight is one tensor in w.safetensors and another in "
        f"{tmp_path / 'both.safetensors'}\n  fix: " in capsys.readouterr().err
    )


def test_constants_that_are_missing_are_named_with_the_option(capsys: Capture) -> None:
    assert main(["run", "bare.json", *WEIGHTS]) == 1

    printed = capsys.readouterr().err
    assert "missing: frequencies, f32[2] (not in the state_dict: pass it in constants=)" in printed
    assert "missing: shift, f32[2] (not in the state_dict: pass it in constants=)" in printed
    assert "tensors outside the state_dict go into constants= (--constants FILE)" in printed


def test_random_weights_leave_the_constants_that_are_given(one: list[str], capsys: Capture) -> None:
    assert main(["run", "bare.json", "--random-weights", "1", *CONSTANTS, *one]) == 0

    assert "random, seed 1; constants of c.safetensors" in capsys.readouterr().out


def test_verify_takes_constants_for_both(capsys: Capture) -> None:
    assert main(["verify", "bare.json", "scaled.py:Scaled", *WEIGHTS, *CONSTANTS]) == 0
    assert main(["verify", "bare.json", "scaled.py:Scaled"]) == 0

    assert capsys.readouterr().out.count("graph and model agree: 1 result") == 2


def test_run_sums_up_many_updates_unless_all_are_asked_for(tmp_path: Path, capsys: Capture) -> None:
    class Counters(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for index in range(15):
                self.register_buffer(f"count{index}", torch.zeros(1), persistent=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for buffer in self.buffers():
                buffer.add_(x)
            return x

    save_ir(extract_ir(Counters(), (torch.ones(1),)), tmp_path / "counters.json")

    assert main(["run", str(tmp_path / "counters.json")]) == 0
    summary = capsys.readouterr().out
    assert main(["run", str(tmp_path / "counters.json"), "--all-updates"]) == 0
    everything = capsys.readouterr().out

    assert "updated count11" in summary
    assert "updated count12" not in summary
    assert "... and 3 more updates: --all-updates prints them" in summary
    assert "updated count14" in everything
    assert "more update" not in everything


def test_info_names_ops_that_nothing_here_runs(tmp_path: Path, capsys: Capture) -> None:
    graph = Graph("future")
    x = graph.add_input("x", TensorType((2,), torch.float32))
    node = graph.insert("aten.relu.default", [x], {}, types=x.type)
    node = graph.insert("aten.of_the_future.default", node.outputs, {}, types=x.type, operands=["self"])
    graph.set_outputs(node.outputs[0])
    save_ir(graph, tmp_path / "future.json")

    assert main(["info", str(tmp_path / "future.json")]) == 0
    printed = capsys.readouterr().out
    assert main(["info", str(tmp_path / "future.json"), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)

    assert "1 op that neither PyTorch nor a plugin has here:" in printed
    assert facts["unknown_ops"] == ["aten.of_the_future.default"]
