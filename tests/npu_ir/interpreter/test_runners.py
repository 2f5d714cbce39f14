"""Runners of the commands: the interpreter, or one of a plugin."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from npu_ir import Interpreter, extract_ir, save_ir, verify_ir
from npu_ir.cli import main
from npu_ir.errors import UsageError
from npu_ir.interpreter.runners import default_runner, find_runner
from npu_ir.plugins import plugin_manager
from tests.support.rows import each_row

Capture = pytest.CaptureFixture[str]
MODEL = "import torch\nclass Net(torch.nn.ReLU):\n    pass\n"
X = torch.tensor([1.0, -2.0])


class Doubling(Interpreter):
    """Returns twice of what the graph does."""

    def run_flat(self, *args: Any, **kwargs: Any) -> Any:
        leaves, mutations = super().run_flat(*args, **kwargs)
        return [2 * leaf for leaf in leaves], mutations


@pytest.fixture
def runners(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The runners of plugins; none at first."""
    found: dict[str, Any] = {}
    installed = dataclasses.replace(plugin_manager.get_plugins(), runners=found)
    monkeypatch.setattr(plugin_manager, "get_plugins", lambda: installed)
    return found


@pytest.fixture(autouse=True)
def _in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "net.py").write_text(MODEL)
    save_ir(extract_ir(nn.ReLU(), (X,)), tmp_path / "net.json")
    yield
    for name in [name for name in sys.modules if name.partition(":")[0] == "net"]:
        del sys.modules[name]


def test_the_interpreter_runs_graphs_where_nothing_else_is_there(runners: Any, capsys: Capture) -> None:
    code = main(["run", "net.json"])

    assert code == 0
    assert default_runner() == "interpreter"
    assert find_runner("interpreter") is Interpreter
    assert "run by       interpreter\n" in capsys.readouterr().out


def test_the_executor_runs_graphs_where_it_is_there(runners: Any, capsys: Capture) -> None:
    runners["executor"] = Doubling

    main(["run", "net.json", "--output", "doubled.pt"])
    main(["run", "net.json", "--output", "plain.pt", "--on", "interpreter"])

    printed = capsys.readouterr().out
    assert "run by       executor\n" in printed
    assert "run by       interpreter\n" in printed
    assert torch.equal(torch.load("doubled.pt")["result"], 2 * torch.load("plain.pt")["result"])


def test_a_runner_of_another_name_runs_graphs_when_asked(runners: Any, capsys: Capture) -> None:
    runners["other"] = Doubling

    main(["run", "net.json"])
    main(["run", "net.json", "--on", "other"])

    by_default, when_asked = capsys.readouterr().out.split("run by")[1:]
    assert by_default.split()[0] == "interpreter"
    assert when_asked.split()[0] == "other"


@each_row("command", [["run", "net.json"], ["verify", "net.json", "net.py:Net"]])
def test_a_runner_that_is_not_there_is_refused(runners: Any, capsys: Capture, command: list[str]) -> None:
    runners["other"] = Doubling

    code = main([*command, "--on", "quick"])

    assert code == 2
    assert capsys.readouterr().err == (
        "npu: error: there is no runner 'quick'\n"
        "  fix: there are interpreter, other; plugins provide others\n"
    )


def test_the_executor_gets_the_backends_that_are_named(runners: Any, capsys: Capture) -> None:
    asked: list[Any] = []

    def executor(graph: Any, weights: Any, constants: Any, backends: Any = ()) -> Interpreter:
        asked.append(backends)
        return Interpreter(graph, weights, constants)

    runners["executor"] = executor

    code = main(["run", "net.json", "--backend", "acme", "--backend", "aten"])

    assert code == 0
    assert asked == [["acme", "aten"]]
    assert "run by       executor on acme, aten\n" in capsys.readouterr().out


def test_backends_are_for_the_executor_alone(runners: Any, capsys: Capture) -> None:
    assert main(["run", "net.json", "--on", "interpreter", "--backend", "aten"]) == 2

    assert capsys.readouterr().err == (
        "npu: error: the interpreter has no backends\n"
        "  fix: --on executor, which npu-runtime provides, or no --backend\n"
    )


def test_verify_compares_what_the_runner_computes(runners: Any, capsys: Capture) -> None:
    runners["executor"] = Doubling

    codes = [main(["verify", "net.json", "net.py:Net", *on]) for on in ([], ["--on", "interpreter"])]

    printed = capsys.readouterr().out
    assert codes == [1, 0]
    assert "graph run by: executor\n" in printed
    assert "when the interpreter runs it, not the executor\n" in printed
    assert printed.rstrip().splitlines()[-2] == "graph run by: interpreter"


def test_verify_ir_takes_the_name_of_a_runner(runners: Any) -> None:
    runners["other"] = Doubling
    graph = extract_ir(nn.ReLU(), (X,))

    plain, doubled = verify_ir(graph, nn.ReLU(), (X,)), verify_ir(graph, nn.ReLU(), (X,), on="other")

    assert (plain.ok, plain.on) == (True, "interpreter")
    assert (doubled.ok, doubled.on) == (False, "other")
    assert doubled.first_divergence is None
    with pytest.raises(UsageError, match="there is no runner 'quick'\n  fix: there are interpreter, other"):
        verify_ir(graph, nn.ReLU(), (X,), on="quick")
