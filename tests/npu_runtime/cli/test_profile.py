"""Output, files and refusals of ``npu profile`` and ``npu bench``."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from npu_ir import extract_ir, save_ir
from npu_ir.cli import main
from npu_runtime import IRExecutor
from npu_runtime.cli.result_difference import result_difference
from tests.support.peers import without_peers

Capture = pytest.CaptureFixture[str]

MODEL = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(3, 4), torch.nn.Linear(4, 2)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return torch.relu(self.second(torch.sigmoid(self.first(x))))

class Wide(Net):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(5, 4)

class Other(torch.nn.Module):
    def forward(self, x):
        return x
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("timed")
    (folder / "timed_net.py").write_text(MODEL)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "path", [*sys.path])
        torch.manual_seed(0)
        words = ["extract", "timed_net.py:Net", "--input", "x=f32[5,3]", "-o"]
        assert main([*words, "net.json", "--save-weights"]) == main([*words, "bare.json"]) == 0
    yield folder
    for name in [name for name in sys.modules if name.partition(":")[0] == "timed_net"]:
        del sys.modules[name]


@pytest.fixture(autouse=True)
def _in_folder(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [*sys.path])
    without_peers(monkeypatch)
    capsys.readouterr()


def rows(printed: str) -> list[list[str]]:
    return [line.split() for line in printed.split("\n\n", maxsplit=1)[0].splitlines()]


def test_profile_prints_a_row_per_step_and_what_it_ran_on(capsys: Capture) -> None:
    words = ["--json", "profile.json", "--trace", "trace.json"]

    assert main(["profile", "net.json", "--passes", "default", "--repeat", "2", *words]) == 0

    printed = capsys.readouterr().out
    assert rows(printed)[0][:3] == ["node", "time", "share"]
    assert {row[0] for row in rows(printed)[1:]} == {"linear", "sigmoid", "linear_1", "relu", "add"}
    assert "call         " in printed
    assert "median of 2" in printed
    assert "weights      net.weights.safetensors, saved with the graph" in printed
    assert "random data  %x: f32[5, 3], seed 0" in printed
    assert len(json.loads(Path("profile.json").read_text())["steps"]) == 5
    events = json.loads(Path("trace.json").read_text())["traceEvents"]
    assert sum(event.get("cat") == "step" for event in events) == 5


def test_profile_adds_up(capsys: Capture) -> None:
    for by, first in (("op", {"aten.linear.default"}), ("module", {"(all)", "first", "second"})):
        assert main(["profile", "net.json", "--passes", "default", "--repeat", "2", "--by", by]) == 0

        printed = rows(capsys.readouterr().out)
        assert printed[0][:2] == [by, "steps"]
        assert first <= {row[0] for row in printed[1:]}


def test_profile_prints_no_more_rows_than_asked_for(capsys: Capture) -> None:
    printed = []
    for limit in ("2", "0"):
        words = ["--passes", "default", "--repeat", "1", "--limit", limit]
        assert main(["profile", "net.json", *words]) == 0
        printed.append(capsys.readouterr().out)

    assert printed[0].splitlines()[3] == "... 3 rows more (--limit 0)"
    assert len(rows(printed[1])) == 1 + 5


def test_profile_draws_a_roofline_and_states_its_limits(capsys: Capture) -> None:
    assert main(["profile", "net.json", "--repeat", "1", "--roofline", "net.svg"]) == 0

    assert "limits       " in (printed := capsys.readouterr().out)
    assert "GFLOP/s of a product, " in printed
    assert Path("net.svg").read_text().startswith("<svg ")

    assert main(["profile", "net.json", "--roofline", "net.png"]) == 2
    assert "--roofline net.png: a roofline is an SVG" in capsys.readouterr().err


def test_profile_runs_on_the_threads_and_passes_that_are_asked_for(capsys: Capture) -> None:
    before = torch.get_num_threads()
    words = ["--threads", str(before + 1), "--passes", "fuse-linear-activation", "--repeat", "1"]

    assert main(["profile", "net.json", *words]) == 0

    printed = capsys.readouterr().out
    assert f"{before + 1} threads" in printed
    assert len(rows(printed)) == 1 + 4
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("command", ["profile", "bench"])
def test_weights_are_those_at_hand_or_random(command: str, capsys: Capture) -> None:
    for words, origin in (
        ("bare.json", "random, seed 0"),
        ("bare.json --random-weights 7", "random, seed 7"),
        ("bare.json --weights net.weights.safetensors", "net.weights.safe"),
        ("net.json", "net.weights.safetensors, saved with the graph"),
    ):
        assert main([command, *words.split(), "--repeat", "1"]) == 0, words
        assert f"  {origin}" in capsys.readouterr().out, words


def test_bench_compares_the_interpreter_and_the_executor(capsys: Capture) -> None:
    assert main(["bench", "net.json", "--passes", "default", "--repeat", "3", "--json", "bench.json"]) == 0

    table = rows(capsys.readouterr().out)
    data = json.loads(Path("bench.json").read_text())
    assert [row[0] for row in table] == ["run", "interpreter", "executor"]
    assert table[1][-1] == "1.00x"
    assert table[2][-3] == "none"
    assert list(data["timings"]) == ["interpreter", "executor"]
    assert data["timings"]["executor"]["turns"] == 3
    assert 0 < data["timings"]["executor"]["fastest"] <= data["timings"]["executor"]["median"]
    assert data["difference"] == 0
    assert data["compile_seconds"] > 0
    assert data["backend"] == ["aten"]


def test_bench_draws_the_same_random_numbers_for_both(capsys: Capture) -> None:
    model = torch.nn.Dropout(0.5).train()
    save_ir(extract_ir(model, (torch.ones(64),)), "dropout.json")

    assert main(["bench", "dropout.json", "--repeat", "1"]) == 0

    assert rows(capsys.readouterr().out)[2][-3] == "none"


def test_bench_fails_where_only_the_executor_gives_nan(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    def with_nan(executor: IRExecutor, *args: Any) -> Any:
        results, updates = run_flat(executor, *args)
        return [torch.full_like(item, torch.nan) for item in results], updates

    run_flat = IRExecutor.run_flat
    monkeypatch.setattr(IRExecutor, "run_flat", with_nan)

    assert main(["bench", "net.json", "--repeat", "1", "--json", "nan.json"]) == 1

    printed = capsys.readouterr().out
    assert rows(printed)[2][-3] == "undefined"
    note = (
        "the executor gives NaN, infinities or shapes that the interpreter does not: npu compare shows where"
    )
    assert note in printed.splitlines()
    assert json.loads(Path("nan.json").read_text())["difference"] is None


NAN, INF = float("nan"), float("inf")


def test_the_difference_of_results_is_no_number_where_nothing_can_be_compared() -> None:
    for wanted, found, difference in (
        ([4.0, 1.0], [4.0, 1.0], 0.0),
        ([4.0, 1.0], [4.0, 2.0], 0.25),  # relative to the largest
        ([0.0], [0.5], 0.5),
        ([NAN, INF, 2.0], [NAN, INF, 1.0], 0.5),
        ([1.0, 1.0], [NAN, 1.0], INF),
        ([NAN, 1.0], [1.0, 1.0], INF),
        ([INF], [-INF], INF),
        ([1.0], [1.0, 1.0], INF),
    ):
        left, right = torch.tensor(wanted), torch.tensor(found)

        assert result_difference(([left], {}), ([right], {})) == difference, (wanted, found)
        assert result_difference(([], {"state": left}), ([], {"state": right})) == difference, found
    assert result_difference(([2, None], {}), ([2, None], {})) == 0
    assert result_difference(([2], {}), ([2.0], {})) == INF
    assert result_difference(([torch.ones(2)], {}), ([torch.ones(2).double()], {})) == INF
    assert result_difference(([], {"state": torch.ones(2)}), ([], {})) == INF


@pytest.mark.parametrize("weights", ["timed_net.py:Net", "net.weights.safetensors"])
def test_bench_times_the_model_with_its_own_weights_or_those_given(weights: str, capsys: Capture) -> None:
    given = ["--weights", weights] if weights.startswith("net") else []

    assert main(["bench", "bare.json", "--model", "timed_net.py:Net", "--repeat", "2", *given]) == 0

    printed = capsys.readouterr().out
    assert [row[0] for row in rows(printed)] == ["run", "eager", "interpreter", "executor"]
    assert "to eager" in printed
    assert f"weights      {weights}" in printed


@pytest.mark.parametrize("command", ["profile", "bench"])
def test_what_cannot_be_is_refused(command: str, capsys: Capture) -> None:
    limits = [("--limit -3", "'-3' is not a number from 0 on")] if command == "profile" else []
    for words, message in (
        *limits,
        ("--passes nope", "there is no pass 'nope'"),
        ("--backend nowhere", "there is no backend 'nowhere'"),
        ("--input y=f32[1]", "the graph has no input 'y'"),
        ("--repeat 0", "'0' is not a number from 1 on"),
        ("--threads many", "'many' is not a number from 1 to 1024"),
        ("--threads 100000", "'100000' is not a number from 1 to 1024"),
        ("--json no/where.json", "--json no/where.json: there is no folder no"),
    ):
        assert main([command, "net.json", *words.split()]) == 2, words
        assert message in capsys.readouterr().err, words


def test_bench_refuses_a_model_without_the_weights_of_the_graph(capsys: Capture) -> None:
    for model, message in (
        ("Other", "timed_net.py:Other has no 'calls', which the graph has"),
        ("Wide", "timed_net.py:Wide does not take the weights of the graph: "),
    ):
        words = ["--model", f"timed_net.py:{model}", "--weights", "net.weights.safetensors"]

        assert main(["bench", "bare.json", *words]) == 1

        printed = capsys.readouterr().err
        assert message in printed
        assert "fix: name the model that the graph was captured from" in printed
