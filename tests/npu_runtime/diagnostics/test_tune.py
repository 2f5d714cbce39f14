"""Measured costs: what is measured, where it is stored, and when an executor chooses by it."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from npu_ir import OpNode, SerializationError, extract_ir, save_ir
from npu_ir.cli import main
from npu_ir.errors import UsageError
from npu_ir.plugins import plugin_manager
from npu_runtime import Backend, BackendOp, IRExecutor, explain, tune
from npu_runtime.backends import measured_costs
from npu_runtime.backends.measured_costs import (
    MeasuredCosts,
    describe_machine,
    load_measured_costs,
    save_measured_costs,
    tuning_path,
)
from tests.support.backends.broken_backends import Program, Sound

Capture = pytest.CaptureFixture[str]


class Optimist(Sound):
    """Says that it takes no time, and needs a millisecond for each node."""

    name = "optimist"

    def supports(self, node: OpNode) -> str | None:
        return None if node.op_type in ("aten.sin.default", "aten.neg.default") else "it likes sines"

    def cost(self, node: OpNode) -> float | None:
        return 0.0

    def by_cost(self) -> Backend:
        return self

    def pipeline(self, device: torch.device) -> str:
        return "minimal"

    def run(self, program: Program, inputs: Sequence[Any]) -> Sequence[Any]:
        time.sleep(0.001)
        return super().run(program, inputs)


class Fused(Optimist):
    """Likes negations only if they are free."""

    def is_free(self, node: OpNode) -> bool:
        return node.op_type == "aten.neg.default"

    def lower(self, graph: Any) -> Sequence[BackendOp]:
        assert len(graph.nodes) == 1
        assert graph.nodes[0].op_type == "aten.sin.default"
        return super().lower(graph)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(8))

    def forward(self, x: Tensor) -> Tensor:
        return (x.sin() * self.weight).sin().neg()


X = torch.rand(8)


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> nn.Module:
    """A model, whose graph is in the working directory, and one backend that competes with ATen."""
    backends = plugin_manager.get_plugins().backends
    for name in list(backends):
        if name != "aten":
            monkeypatch.delitem(backends, name)
    monkeypatch.setitem(backends, "optimist", Optimist())
    monkeypatch.chdir(tmp_path)
    model = Net()
    save_ir(extract_ir(model, (X,)), "net.json", weights=model.state_dict())
    return model


def backends_of(executor: IRExecutor) -> list[str]:
    return [node.backend for node in explain(executor).nodes]


def test_what_was_measured_decides_instead_of_what_is_stated(model: nn.Module) -> None:
    graph = extract_ir(model, (X,))

    costs = tune(graph, model.state_dict(), (X,), repeat=2)

    sine = costs.seconds["aten.sin.default(f32[8]) {} -> f32[8]"]
    assert sine["optimist"] > 0.001 > sine["aten"] > 0
    assert set(costs.seconds) == {
        "aten.sin.default(f32[8]) {} -> f32[8]",  # of both sines once, and nothing that only ATen runs
        "aten.neg.default(f32[8]) {} -> f32[8]",
    }
    assert costs.machine["threads"] == str(torch.get_num_threads())
    stated = IRExecutor(graph, model.state_dict())
    tuned = IRExecutor(graph, model.state_dict(), tuning=costs)
    assert backends_of(stated) == ["optimist", "aten", "optimist", "optimist"]
    assert backends_of(tuned) == ["aten"] * 4
    reason = explain(tuned).nodes[0].reasons["optimist"]
    assert reason.startswith("aten is cheaper: ")
    assert reason.endswith(", measured")
    assert torch.equal(tuned(X), model(X))


def test_the_fastest_pipeline_is_that_of_auto(model: nn.Module) -> None:
    graph = extract_ir(model, (X,))
    costs = tune(graph, model.state_dict(), (X,), repeat=2)
    assert costs.passes in ("minimal", "cpu")
    other = dataclasses.replace(costs, passes="default")

    executors = [
        IRExecutor(graph, model.state_dict(), tuning=item, passes=passes)
        for item, passes in ((other, "auto"), (other, "minimal"))
    ]

    assert [item._settings.pass_names()[-1] for item in executors] != []
    assert "conv-bn-folding" in executors[0]._settings.pass_names()
    assert "conv-bn-folding" not in executors[1]._settings.pass_names()


def test_free_nodes_are_not_measured(model: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(plugin_manager.get_plugins().backends, "optimist", Fused())
    monkeypatch.setattr(Fused, "cost", lambda *_: 1.0)

    costs = tune(extract_ir(model, (X,)), model.state_dict(), (X,), repeat=1)

    assert set(costs.seconds) == {"aten.sin.default(f32[8]) {} -> f32[8]"}


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"cpu": "another"}, id="cpu"),
        pytest.param({"threads": "77"}, id="threads"),
        pytest.param({"optimist": "another 1.0"}, id="version of a backend"),
    ],
)
def test_costs_of_another_machine_are_not_taken(change: dict[str, str], model: nn.Module) -> None:
    graph = extract_ir(model, (X,))
    costs = tune(graph, model.state_dict(), (X,), repeat=1)
    elsewhere = dataclasses.replace(costs, machine={**costs.machine, **change})

    executor = IRExecutor(graph, model.state_dict(), tuning=elsewhere)

    assert backends_of(executor) == ["optimist", "aten", "optimist", "optimist"]


def test_costs_are_for_the_threads_of_the_executor(model: nn.Module) -> None:
    graph, other = extract_ir(model, (X,)), torch.get_num_threads() + 1
    costs = tune(graph, model.state_dict(), (X,), threads=other, repeat=1)

    assert costs.machine["threads"] == str(other)
    assert "aten" in backends_of(IRExecutor(graph, model.state_dict(), tuning=costs, threads=other))[0]
    assert backends_of(IRExecutor(graph, model.state_dict(), tuning=costs))[0] == "optimist"


def test_nodes_of_open_sizes_keep_what_is_stated(model: nn.Module) -> None:
    graph = extract_ir(model, (X,), dynamic_shapes=({0: None},))

    assert tune(graph, model.state_dict(), (X,), repeat=1).passes


def test_what_cannot_be_timed_is_refused(model: nn.Module) -> None:
    graph = extract_ir(model, (X,))

    with pytest.raises(UsageError, match="repeat=0: a call is timed at least once"):
        tune(graph, model.state_dict(), (X,), repeat=0)
    with pytest.raises(UsageError, match="nodes are timed on the CPU, and the weights are on meta"):
        tune(graph, model.to("meta").state_dict(), (X,))


# The command line


def test_the_costs_beside_a_graph_are_taken_by_its_commands(model: nn.Module, capsys: Capture) -> None:
    assert main(["explain", "net.json"]) == 0
    assert "optimist  3" in capsys.readouterr().out

    assert main(["tune", "net.json", "--repeat", "1"]) == 0

    printed = capsys.readouterr().out
    assert "net.tuning.json   2 kinds of nodes measured" in printed
    assert "weights           net.weights.safetensors, saved with the graph" in printed
    assert main(["explain", "net.json"]) == 0
    assert ", measured" in capsys.readouterr().out
    assert main(["compile", "net.json", "-o", "net.npu"]) == 0
    assert "4 nodes on aten" in capsys.readouterr().out
    assert backends_of(IRExecutor.load("net.npu")) == ["aten"] * 4
    assert torch.equal(IRExecutor.load("net.npu")(X), model(X))


def test_nothing_is_measured_where_the_costs_cannot_be_stored(
    model: nn.Module, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("net.tuning.json").write_text("{}")
    monkeypatch.setattr(Optimist, "run", None)

    assert main(["tune", "net.json"]) == 1

    assert "these are not measured costs (at net.tuning.json)" in capsys.readouterr().err


def test_a_graph_is_compiled_into_a_file(model: nn.Module, capsys: Capture) -> None:
    words = ["--passes", "none", "--threads", "1"]

    assert main(["compile", "net.json", "-o", "net.npu", *words]) == 0

    printed = capsys.readouterr().out
    assert "net.npu   " in printed
    assert "nodes     4 nodes on aten" in printed
    loaded = IRExecutor.load("net.npu")
    assert loaded.threads == 1
    assert torch.equal(loaded(X), model(X))


def test_weights_are_not_made_up_for_a_file(model: nn.Module, capsys: Capture) -> None:
    save_ir(extract_ir(model, (X,)), "bare.json")

    assert main(["compile", "bare.json", "-o", "net.npu"]) == 2

    assert "the graph needs 1 weight, and was saved without them" in capsys.readouterr().err
    assert not Path("net.npu").exists()


# Files


def costs_of(cpu: str) -> MeasuredCosts:
    return MeasuredCosts({"cpu": cpu}, "default", {"aten.sin.default": {"aten": 1e-6, "host": 2}})


def test_a_file_has_the_costs_of_several_machines(tmp_path: Path) -> None:
    path = tuning_path(tmp_path / "net.json")
    assert path.name == "net.tuning.json"
    assert load_measured_costs(path, {"cpu": "a"}) is None

    for cpu in ("a", "b", "a"):
        save_measured_costs(costs_of(cpu), path)

    assert len(json.loads(path.read_text())["machines"]) == 2
    assert load_measured_costs(path, {"cpu": "a"}) == costs_of("a")
    assert load_measured_costs(path, {"cpu": "c"}) is None


def file_of_time(seconds: str) -> str:
    entry = f'{{"machine": {{}}, "passes": "", "seconds": {{"node": {{"aten": {seconds}}}}}}}'
    return f'{{"format": "npu-tuning", "version": 1, "machines": [{entry}]}}'


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("{}", "(?s)these are not measured costs.*remove the file, and measure again: npu tune"),
        ('{"format": "npu-tuning", "version": 2}', "the costs have format 2, this npu-runtime reads 1"),
        ('{"format": "npu-tuning", "version": 1}', "(?s)the key 'machines' is missing.*and measure again"),
        (file_of_time("-1"), "(?s)-1 is not a time.*seconds.node.aten.*npu tune"),
        (file_of_time("9" * 400), "(?s)99[.]{3}99* is not a time.*seconds.node.aten.*npu tune"),
        ("[", "(?s)Expecting.*remove the file, and measure again: npu tune"),
    ],
)
def test_a_file_of_other_content_is_refused(content: str, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "net.tuning.json"
    path.write_text(content)

    with pytest.raises(SerializationError, match=problem):
        load_measured_costs(path, {})
    with pytest.raises(SerializationError, match=problem):
        save_measured_costs(costs_of("a"), path)


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SerializationError, match="(?s)the measured costs cannot be written: No such.*folder"):
        save_measured_costs(costs_of("a"), tmp_path / "none" / "net.tuning.json")


def test_a_machine_is_described_where_there_is_no_cpuinfo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured_costs, "_CPU_INFO", Path("/none"))

    found = describe_machine([], 3)

    assert found["cpu"]
    assert found == {"cpu": found["cpu"], "threads": "3", "torch": torch.__version__}


def test_the_path_of_the_costs_themselves_names_them(tmp_path: Path) -> None:
    path = tmp_path / "net.tuning.json"

    assert tuning_path(path) == path


@pytest.mark.parametrize("name", ["net.json", "a" * 5000])
def test_a_path_without_graph_and_costs_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(SerializationError, match=r"(?s)neither the graph .*fix: check the path"):
        IRExecutor(extract_ir(nn.ReLU(), (X,)), tuning=tmp_path / name)
