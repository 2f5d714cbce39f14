"""``npu compare``: sides as text, what is printed and written, exit codes."""

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from npu_ir import extract_ir, load_ir, parse_ir, save_ir
from npu_ir.cli import main
from npu_passes import optimize
from tests.support.places import ROOT

PAGE = ROOT / "docs" / "how-to" / "compare-two-runs.md"
FACTORY = f"{__file__}:make"


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.dropout = nn.Linear(8, 4), nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        return torch.nn.functional.gelu(self.dropout(self.linear(x))) * 2


def make() -> nn.Module:
    return Net()


def npu(*words: str) -> int:
    return main(["compare", *words])


@pytest.fixture
def net(tmp_path: Path) -> str:
    model = make().eval()
    graph = extract_ir(model, (torch.randn(2, 8),))
    save_ir(graph, tmp_path / "net.json", weights=model.state_dict())
    return str(tmp_path / "net.json")


@pytest.fixture
def wrong(net: str, tmp_path: Path) -> str:
    text = str(load_ir(net))
    assert text.count("{other=2}") == 1
    save_ir(parse_ir(text.replace("{other=2}", "{other=2.5}")), tmp_path / "wrong.json")
    return str(tmp_path / "wrong.json")


@pytest.mark.parametrize(("a", "b", "label"), [
    pytest.param("interpreter", "executor", "b: executor of 'Net'", id="executor"),
    pytest.param("interpreter", "executor:passes=fuse", "b: executor of 'Net'", id="pipeline"),
    pytest.param("interpreter", "executor:passes=cse,dead-code", "b: executor of 'Net'", id="passes"),
    pytest.param("interpreter", "executor:passes=none", "b: executor of 'Net'", id="no_passes"),
    pytest.param("interpreter", "executor:after=cse,dead-code@1", "b: executor of 'Net after cse, run 1'",
        id="executor_after"),
    pytest.param("interpreter", "executor:after=default", "b: executor of 'Net after ",
        id="executor_after_all"),
    pytest.param("executor", "interpreter", "b: interpreter of 'Net'", id="executor_first"),
    pytest.param("interpreter", "backend:aten", "b: executor of 'Net'", id="backend"),
    pytest.param("interpreter", "after:default", "b: interpreter of 'Net after ", id="after_pipeline"),
    pytest.param("interpreter", "after:cse,dead-code@1", "'Net after cse, run 1'", id="after"),
    pytest.param("interpreter", "float64", "b: float64 run of 'Net'", id="float64"),
    pytest.param(f"eager:{FACTORY}", "interpreter", "a: eager Net", id="eager"),
])  # fmt: skip
def test_sides_that_agree_end_with_0(
    net: str, capsys: pytest.CaptureFixture[str], a: str, b: str, label: str
) -> None:
    assert npu(net, "--a", a, "--b", b) == 0

    out = capsys.readouterr().out
    assert label in out
    assert "a and b agree: " in out
    assert "random data  %x: f32[2, 8], seed 0" in out


def test_sides_that_differ_end_with_1_and_are_written(
    net: str, wrong: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report, folder = tmp_path / "report.json", tmp_path / "repro"

    assert npu(net, wrong, "--b", "interpreter", "--json", str(report), "--repro-dir", str(folder)) == 1

    out = capsys.readouterr().out
    assert "first divergence: %mul, aten.mul.Tensor, in " in out
    data = json.loads(report.read_text())
    assert data["first_divergence"]["name"] == "mul"
    assert data["repro"] == str(folder)
    assert (folder / "repro.py").exists()


def test_the_folder_of_the_reproduction_may_be_given_by_its_first_name(
    net: str, wrong: str, tmp_path: Path
) -> None:
    assert npu(net, wrong, "--b", "interpreter", "--repro", str(tmp_path / "repro")) == 1

    assert (tmp_path / "repro" / "repro.py").exists()


def test_a_tolerance_can_be_given(net: str, wrong: str) -> None:
    assert npu(net, wrong, "--b", "interpreter", "--rtol", "1") == 0
    assert npu(net, wrong, "--b", "interpreter", "--rtol", "0.1") == 1


def test_the_graph_of_side_b_gets_the_same_weights(net: str, tmp_path: Path) -> None:
    save_ir(optimize(load_ir(net), "fuse"), tmp_path / "fast.json")

    assert npu(net, str(tmp_path / "fast.json"), "--b", "interpreter") == 0
    assert npu(net, str(tmp_path / "fast.json"), "--b", "executor", "--random-weights", "3") == 0


def test_weights_are_those_of_the_model_where_none_are_given(
    net: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert npu(net, "--a", f"eager:{FACTORY}", "--b", "executor") == 0
    assert "weights      those of the model" in capsys.readouterr().out
    assert npu(net, "--a", f"eager:{FACTORY}", "--b", "executor", "--weights", net) == 0
    assert f"weights      {net}" in capsys.readouterr().out


def test_a_model_in_train_mode_draws_random_numbers(net: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert npu(net, "--a", f"eager:{FACTORY}", "--b", "interpreter", "--train") == 1

    assert "a and b differ in " in capsys.readouterr().out


@pytest.mark.parametrize(("words", "message"), [
    pytest.param(["--rtol", "-1"], "'-1' is not a tolerance", id="negative_tolerance"),
    pytest.param(["--atol", "nan"], "'nan' is not a tolerance", id="nan_tolerance"),
    pytest.param(["--rtol", "a"], "'a' is not a number", id="no_tolerance"),
    pytest.param(["--b", "gpu"], "'gpu' is not a side", id="unknown"),
    pytest.param(["--b", "interpreter:fast"], "'interpreter:fast' is not a side", id="option_of_none"),
    pytest.param(["--b", "backend"], "'backend' is not a side", id="no_name"),
    pytest.param(["--b", "after:"], "'after:' is not a side", id="no_passes"),
    pytest.param(["--b", "executor:fast"], "an executor has no such option", id="option"),
    pytest.param(["--b", "executor:passes="], "an executor has no such option", id="empty_passes"),
    pytest.param(["--b", "executor:after="], "an executor has no such option", id="empty_after"),
    pytest.param(["--b", "executor:passes=nope"], "nope", id="no_such_pass"),
    pytest.param(["--b", "executor:after=cse@x"], "'x' is not a number of runs", id="executor_no_number"),
    pytest.param(["--b", "executor:after=@2"], "names no passes", id="executor_no_passes"),
    pytest.param(["--b", "after:nope"], "nope", id="no_such_pass_after"),
    pytest.param(["--b", "after:cse@9"], "there is no state after 9 runs", id="too_many_runs"),
    pytest.param(["--b", "backend:nope"], "there is no backend 'nope'", id="no_such_backend"),
    pytest.param(["--b", "after:cse@x"], "'x' is not a number of runs", id="no_number"),
    pytest.param(["--a", "eager:nothing"], "'nothing' does not name a model", id="factory"),
])  # fmt: skip
def test_what_cannot_be_read_is_wrong_usage(
    net: str, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    assert npu(net, *words) == 2

    assert message in capsys.readouterr().err


def test_every_command_of_the_page_runs(
    net: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    save_ir(optimize(load_ir(net), "fuse"), tmp_path / "fast.json")
    shutil.copy(tmp_path / "net.weights.safetensors", tmp_path / "net.safetensors")
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "net.py").write_text(Path(__file__).read_text())
    monkeypatch.chdir(tmp_path)

    commands = re.findall(r"^npu (.*)$", PAGE.read_text(), re.MULTILINE)
    codes = {command: main(shlex.split(command.replace("my-backend", "aten"))) for command in commands}

    assert len(commands) > 3
    assert set(codes.values()) == {0}, (codes, capsys.readouterr().err)
