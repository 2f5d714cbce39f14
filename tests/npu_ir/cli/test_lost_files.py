"""Outputs that would replace a file that the command needs: refused before any work."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.rows import each_row

MODEL = """
import torch
Net = lambda: torch.nn.Linear(3, 2)
"""
EXTRACT = "extract net.py:Net --input 'f32[2, 3]'"


@pytest.fixture(autouse=True)
def _files(npu: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("net.py").write_text(MODEL)
    npu(f"{EXTRACT} -o full.json --save-weights")
    npu(f"{EXTRACT} -o net.json")


def contents() -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in Path().iterdir() if path.is_file()}


@each_row("command, message", {
    "weights by results": ("run full.json --output full.weights.safetensors",
        "--output full.weights.safetensors: the tensors of full.json are in this file"),
    "given weights": ("run net.json --weights full.weights.safetensors --output full.weights.safetensors",
        "--output full.weights.safetensors: this file is read by the command"),
    "a graph by a report": ("explain net.json --json ./net.json", "--json net.json: this file is read"),
    "a graph by a trace": ("profile net.json --trace net.json", "--trace net.json: this file is read"),
    "weights by a report": ("profile full.json --json full.weights.safetensors", "tensors of full.json are"),
    "two reports": ("profile net.json --json a.json --trace ./a.json", "--json and --trace are both a.json"),
    "code by an executor": ("compile full.json -o net.py", "an executor is not saved as .py"),
    "a graph by an executor": ("compile full.json -o full.json", "write --output full.npu"),
    "code by a report": ("explain net.json --json net.py", "--json net.py: this is a file of Python code"),
    "a graph without its weights": ("check-compat full.json -o full.json",
        "full.json was saved with its weights, which a graph in its place would lose"),
    "an input by results": ("run net.json --random-weights -i input=@x.pt --output x.pt",
        "--output x.pt: this file is read by the command"),
})  # fmt: skip
def test_a_file_that_a_command_needs_is_not_replaced(
    command: str, message: str, npu: Callable[..., str]
) -> None:
    Path("x.pt").touch()
    before = contents()

    printed = npu(command, code=2)

    assert message in printed
    assert contents() == before


def test_a_graph_may_be_replaced_by_a_graph_and_a_report_by_a_report(npu: Callable[..., str]) -> None:
    Path("report.json").write_text("{}")

    npu("check-compat net.json -o net.json")
    npu("explain net.json --json report.json")

    assert Path("report.json").stat().st_size > 2
