"""Runners of the commands: the interpreter, or one of a plugin."""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from npu_ir import Interpreter, extract_ir, verify_ir
from npu_ir.errors import UsageError
from npu_ir.interpreter.runners import default_runner, find_runner
from npu_ir.plugins import plugin_manager
from tests.support.rows import each_row

Runners = dict[str, Any]
FILES = {"net.py": "import torch\nclass Net(torch.nn.ReLU):\n    pass\n"}
SETUP = ["extract net.py:Net -i f32[2] -o net.json"]
X = torch.tensor([1.0, -2.0])
VERIFY = "verify net.json net.py:Net"


class Doubling(Interpreter):
    """Returns twice of what the graph does."""

    def run_flat(self, *args: Any, **kwargs: Any) -> Any:
        leaves, mutations = super().run_flat(*args, **kwargs)
        return [2 * leaf for leaf in leaves], mutations


@pytest.fixture
def runners(monkeypatch: pytest.MonkeyPatch) -> Runners:
    found: Runners = {}
    installed = dataclasses.replace(plugin_manager.get_plugins(), runners=found)
    monkeypatch.setattr(plugin_manager, "get_plugins", lambda: installed)
    return found


@each_row("there, command, code, said", [
    ([], "run net.json", 0, ["run by       interpreter\n"]),
    (["executor"], "run net.json", 0, ["run by       executor\n"]),
    (["executor"], "run net.json --on interpreter", 0, ["run by       interpreter\n"]),
    (["other"], "run net.json", 0, ["run by       interpreter\n"]),
    (["other"], "run net.json --on other", 0, ["run by       other\n"]),
    (["executor"], VERIFY, 1,
        ["graph run by: executor\n", "when the interpreter runs it, not the executor\n"]),
    (["executor"], f"{VERIFY} --on interpreter", 0, ["graph run by: interpreter\n"]),
    (["other"], "run net.json --on quick", 2,
        ["npu: error: there is no runner 'quick'\n  fix: there are interpreter, other; plugins provide"]),
    (["other"], f"{VERIFY} --on quick", 2, ["npu: error: there is no runner 'quick'\n"]),
    ([], "run net.json --on interpreter --backend aten", 2, ["npu: error: the interpreter has no backends\n",
        "  fix: --on executor, which npu-runtime provides, or no --backend\n"]),
])  # fmt: skip
def test_a_command_runs_the_graph_by_the_runner_that_is_there_or_named(
    there: list[str], command: str, code: int, said: list[str], runners: Runners, npu: Callable[..., str]
) -> None:
    runners.clear()
    runners.update(dict.fromkeys(there, Doubling))

    printed = npu(command, code=code)

    assert [text for text in said if text not in printed] == []


def test_what_the_runner_computes_is_saved(runners: Runners, npu: Callable[..., str]) -> None:
    assert (default_runner(), find_runner("interpreter")) == ("interpreter", Interpreter)
    runners["executor"] = Doubling

    npu("run net.json --output doubled.pt")
    npu("run net.json --output plain.pt --on interpreter")

    assert torch.equal(torch.load("doubled.pt")["result"], 2 * torch.load("plain.pt")["result"])


def test_the_executor_gets_the_backends_that_are_named(runners: Runners, npu: Callable[..., str]) -> None:
    asked: list[Any] = []

    def executor(graph: Any, weights: Any, constants: Any, backends: Any = ()) -> Interpreter:
        asked.append(backends)
        return Interpreter(graph, weights, constants)

    runners["executor"] = executor

    printed = npu("run net.json --backend acme --backend aten")

    assert asked == [["acme", "aten"]]
    assert "run by       executor on acme, aten\n" in printed


def test_verify_ir_takes_the_name_of_a_runner(runners: Any) -> None:
    runners["other"] = Doubling
    graph = extract_ir(nn.ReLU(), (X,))

    plain, doubled = verify_ir(graph, nn.ReLU(), (X,)), verify_ir(graph, nn.ReLU(), (X,), on="other")

    assert (plain.ok, plain.on) == (True, "interpreter")
    assert (doubled.ok, doubled.on) == (False, "other")
    assert doubled.first_divergence is None
    with pytest.raises(UsageError, match="there is no runner 'quick'\n  fix: there are interpreter, other"):
        verify_ir(graph, nn.ReLU(), (X,), on="quick")
