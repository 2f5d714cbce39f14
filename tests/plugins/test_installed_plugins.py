"""Distributions of others beside ours, as a user has them: installed, and used through ``npu``.

``nox -s plugins`` installs the example in a fresh environment and runs this. Further plugins are written by
``npu new-plugin`` and installed into folders of their own, which stand on the path of a process of their own.
What needs the example alone runs in this process, which has loaded it: another one would take seconds to
import PyTorch.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from npu_ir.cli import main

pytest.importorskip("npu_plugin_example", reason="nox -s plugins installs it")

MODEL = """
import torch
from npu_plugin_example import add_relu, rescale_bits

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x):
        y = torch.relu(self.linear(x) + x)
        return rescale_bits(add_relu(y, x), 2)
"""
EXAMPLE = "npu-plugin-example (npu-plugin-example 0.1.0)"

Command = Callable[..., str]
# What `plugin` takes: a name, and what to replace in plugin.py and in the pass.
Plugin = Callable[..., Path]


def run(*command: str | Path, cwd: Path, path: tuple[Path, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Run a module of this Python with further folders on the path."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path)), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-m", *map(str, command)],
        cwd=cwd, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip


def npu(*words: str | Path, cwd: Path, path: tuple[Path, ...] = ()) -> str:
    finished = run("npu_ir.cli", *words, cwd=cwd, path=path)
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


@pytest.fixture
def npu_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Run a command of ``npu`` in `tmp_path`, where there is a model; return what it prints."""
    (tmp_path / "net.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)

    def run_here(*words: str) -> str:
        assert main(words) == 0, capsys.readouterr().err
        return capsys.readouterr().out

    return run_here


def reports(cwd: Path, path: tuple[Path, ...] = ()) -> dict[str, Any]:
    return {item["name"]: item for item in json.loads(npu("plugins", "--json", cwd=cwd, path=path))}


@pytest.fixture
def plugin(npu_here: Command, tmp_path: Path) -> Plugin:
    """Write, change and install a plugin; return the folder that puts it on the path."""

    def make(name: str, **changes: tuple[str, str]) -> Path:
        npu_here("new-plugin", name)
        for module, (old, new) in changes.items():
            source = tmp_path / name / "src" / name.replace("-", "_") / f"{module}.py"
            text = source.read_text(encoding="utf-8")
            assert old in text
            source.write_text(text.replace(old, new), encoding="utf-8")
        return install(tmp_path, f"./{name}")

    return make


def install(folder: Path, *names: str) -> Path:
    """Install distributions into a folder of their own; return it."""
    words = ["install", "--quiet", "--no-deps", "--no-build-isolation", "--target", "site", *names]
    finished = run("pip", *words, cwd=folder)
    assert finished.returncode == 0, finished.stderr
    return folder / "site"


def test_the_example_is_loaded_and_its_backend_is_a_plugin_of_its_own(tmp_path: Path) -> None:
    found = reports(tmp_path)

    example, backend = found["npu-plugin-example"], found["npu-plugin-example-backend"]
    assert example["refused"] is backend["refused"] is None
    assert example["distribution"] == "npu-plugin-example 0.1.0"
    assert example["offers"] == {
        "conversion": ["npu_plugin_example.rescale_bits.default"],
        "execution": ["npu_plugin_example.rescale"],
        "passes": ["npu-plugin-example-fuse-add-relu"],
        "pipelines": ["npu-plugin-example"],
    }
    assert backend["offers"] == {"backends": ["npu-plugin-example"]}


def test_its_backend_runs_what_it_can_of_a_model(npu_here: Command, tmp_path: Path) -> None:
    npu_here("extract", "net.py:Net", "--input", "x=f32[2,4]", "-o", "net.json", "--save-weights")

    words = ["--backend", "npu-plugin-example", "--passes", "none", "--json", "explained.json"]
    printed = npu_here("explain", "net.json", *words, "--fail-under", "100", "--by", "flops")

    nodes = json.loads((tmp_path / "explained.json").read_text())["nodes"]
    assert [(node["op_type"].rpartition(".")[0], node["backend"]) for node in nodes] == [
        ("aten.linear", "npu-plugin-example"),
        ("aten.add", "npu-plugin-example"),
        ("aten.relu", "npu-plugin-example"),
        ("npu_plugin_example.add_relu", "aten"),
        ("npu_plugin_example", "aten"),
    ]
    assert "no kernel for npu_plugin_example.rescale" in printed
    assert "npu-plugin-example: 100.0% of the FLOPs" in printed


def test_a_model_of_its_ops_goes_the_whole_way(npu_here: Command, tmp_path: Path) -> None:
    pipeline = ["--pipeline", "npu-plugin-example"]

    npu_here("extract", "net.py:Net", "--input", "x=f32[2,4]", "-o", "net.json", "--save-weights")
    printed = npu_here("opt", "net.json", "-o", "fast.json", *pipeline, "--check", "--explain")
    npu_here("run", "net.json", "--output", "before.safetensors")
    npu("run", "fast.json", "--weights", "net.json", "--output", "after.safetensors", cwd=tmp_path)
    ops = json.loads(npu_here("info", "fast.json", "--json"))["ops"]

    before, after = load_file(tmp_path / "before.safetensors"), load_file(tmp_path / "after.safetensors")
    assert "nodes    5 -> 4\n" in printed
    assert ops == {
        "npu_plugin_example.add_relu.default": 2, "aten.linear.default": 1, "npu_plugin_example.rescale": 1
    }  # fmt: skip
    assert torch.equal(before["result"], after["result"])


KINDS = ("passes", "ops", "executor", "backend", "kernels")


def test_a_plugin_of_each_kind_that_is_just_written_is_sound_and_passes_its_tests(
    npu_here: Command, tmp_path: Path
) -> None:
    """One build and one process for all: each imports PyTorch and captures the same samples."""
    names = [f"fresh-{kind}" for kind in KINDS]
    npu_here("new-plugin", "fresh-example")
    for kind, name in zip(KINDS, names, strict=True):
        npu_here("new-plugin", name, "--kind", kind)
    folders = [f"./{name}" for name in ("fresh-example", *names)]
    site = install(tmp_path, *folders)

    tested = run("pytest", "-q", "--import-mode=importlib", *folders, cwd=tmp_path, path=(site,))
    doctor = npu("plugins", "--doctor", "--json", cwd=tmp_path, path=(site,))

    assert tested.returncode == 0, tested.stdout
    assert " passed" in tested.stdout
    found = {check["topic"]: check["state"] for check in json.loads(doctor)["checks"]}
    assert {found[name] for name in ("fresh-example", *names)} == {"ok"}


def test_the_contract_of_a_pass_and_a_backend_is_run_without_code(tmp_path: Path) -> None:
    words = ["--npu-backend", "npu-plugin-example", "--npu-pass", "npu-plugin-example-fuse-add-relu"]

    tested = run("pytest", "-q", *words, "--npu-operators", "add,mul", cwd=tmp_path)

    assert tested.returncode == 0, tested.stdout
    assert "passed" in tested.stdout


def test_a_name_that_is_taken_is_refused_naming_both_distributions(plugin: Plugin, tmp_path: Path) -> None:
    taken = "npu-plugin-example-fuse-add-relu"
    site = plugin("twin-plugin", fuse_add_relu=("twin-plugin-fuse-add-relu", taken))

    found = reports(tmp_path, (site,))
    warned = run("npu_ir.cli", "passes", cwd=tmp_path, path=(site,)).stderr

    offer = f"twin-plugin (twin-plugin 0.1.0) offers passes called {taken!r}, and so does {EXAMPLE}"
    refusal = f"RegistryError: {offer}"
    assert found["npu-plugin-example"]["refused"] is None
    assert found["twin-plugin"]["refused"] == refusal
    assert f"plugin 'twin-plugin' (twin-plugin 0.1.0) was refused: {refusal}" in warned


def test_a_plugin_that_is_left_out_takes_its_passes_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NPU_DISABLE_PLUGINS", "npu-plugin-example")

    assert "npu-plugin-example" not in npu("passes", cwd=tmp_path)
    assert reports(tmp_path)["npu-plugin-example"]["refused"] == "disabled by NPU_DISABLE_PLUGINS"
