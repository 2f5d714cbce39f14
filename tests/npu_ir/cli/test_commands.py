"""Output, files and exit code of each ``npu`` command."""

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from npu_ir import execute_ir, load_ir, load_weights, parse_ir
from npu_ir.cli import main
from npu_ir.cli.tensor_files import save_results
from npu_ir.errors import SerializationError
from tests.support.rows import each_row

MODEL = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 3)
        self.bn = torch.nn.BatchNorm2d(4)

    def forward(self, x, scale=1.0):
        h = self.bn(self.conv(x)).mean((2, 3)) * scale
        return {"mean": h, "best": h.argmax(-1), "scale": scale}

class Wrong(Net):
    def __init__(self):
        super().__init__()
        self.bn.eps = 1.0

class Tokens(torch.nn.Embedding):
    def __init__(self):
        super().__init__(50, 2)

class Sum(torch.nn.Module):
    def forward(self, x):
        return x.sum()
"""
FILES = {"net.py": MODEL}
EXTRACT = "extract net.py:Net --input 'x=f32[2, 3, 8, 8]'"
SETUP = [
    f"{EXTRACT} -o net.json --save-weights",
    f"{EXTRACT} -o bare.json --meta --train",
    "extract net.py:Tokens --input 'input=i64[3]' -o tokens.json --save-weights",
    "extract net.py:Sum --input 'f64[5]' -o sum.json",
]
Command = Callable[..., str]


@each_row("command, code, said", [
    (f"{EXTRACT} --name tiny", 0, ["graph       tiny\n", "inputs      x: f32[2, 3, 8, 8]\n",
        "result['scale']: always 1.0\n", "parameters  4 tensors, 120 elements, 480 B f32\n",
        "buffers     3 tensors, 9 elements, 32 B f32, 8 B i64\n", " s to extract",
        "saved       nothing: -o FILE saves the graph\n"]),
    ("extract net.py:Net --input 'x=f32[7]' -o broken.json", 1,
        ["npu: error: torch.export cannot capture Net: "]),
    (f"{EXTRACT} --save-weights", 2, ["npu: error: --save-weights needs a place\n  fix: give -o FILE\n"]),
    (f"{EXTRACT} --save-weights --meta -o no.json", 2,
        ["npu: error: a model made with --meta has no weights to save\n  fix: leave out one of the two\n"]),
    ("info net.json", 0,
        ["1  aten.conv2d.default\n", f"made with   PyTorch {torch.__version__}, format 1\n"]),
    ("show net.json --provenance", 0, ["# conv, "]),
    ("show net.json --mermaid --depth 1 --max-nodes 10", 0, ["---\ntitle:"]),
    ("show net.json --dot", 0, ["digraph"]),
    ("show net.json --max-nodes 3", 2,
        ["--max-nodes is for drawings\n  fix: add --mermaid, --dot or -o FILE"]),
    ("show net.json --mermaid --provenance", 2, ["npu: error: --provenance is for the text form\n"]),
    ("show missing.json", 1,
        ["npu: error: cannot be read: No such file or directory (at missing.json)\n  fix: "]),
    ("verify missing.json net.py:Net", 1, ["npu: error: cannot be read: No such file or directory"]),
    ("run net.json", 0, ["random data  %x: f32[2, 3, 8, 8], seed 0\n"]),
    ("run sum.json", 0, ["weights      none needed\n"]),
    ("run tokens.json --int-high 50", 0, ["result"]),
    ("run tokens.json --int-high 5000", 1,
        ["npu: error: aten.embedding.default failed: IndexError: index out of range"]),
    ("run bare.json", 2,
        ["npu: error: the graph needs 7 weights, and was saved without them\n  fix: --weights FILE"]),
    ("run nothing.json -o result.txt", 2,
        ["npu: error: results cannot be saved as 'result.txt'\n  fix: use .safetensors"]),
    ("verify net.json net.py:Net --weights net.weights.safetensors", 0,
        ["graph and model agree: 3 results and 0 mutations, max difference ",
            "random data: %x: f32[2, 3, 8, 8], seed 0\n"]),
    ("verify bare.json net.py:Net --train", 0, ["3 results and 3 mutations"]),
    ("verify net.json net.py:Wrong", 1, ["result['mean']: 8 of 8 elements differ by more than",
        "first diverging node: node 'batch_norm', bn, "]),
    ("verify net.json net.py:Wrong --atol 0.001", 1, ["differ by more than 0.001 + 1.3e-06 * |expected|"]),
])  # fmt: skip
def test_a_command_says_what_it_did_or_why_not(
    command: str, code: int, said: list[str], npu: Command
) -> None:
    printed = npu(command, code=code)

    assert [text for text in said if text not in printed] == []
    assert not [*Path().glob("broken*"), *Path().glob("no.*")]


def test_info_prints_json_that_tells_sizes_and_ops(npu: Command) -> None:
    facts = json.loads(npu("info net.json --json"))

    assert (facts["name"], facts["torch"]) == ("Net", torch.__version__)
    assert facts["inputs"] == [{"name": "x", "type": "f32[2, 3, 8, 8]"}]
    assert facts["outputs"][0] == {"path": "result['mean']", "type": "f32[2, 4]"}
    assert facts["parameters"] == {"count": 4, "elements": 120, "bytes": 480, "bytes_by_dtype": {"f32": 480}}
    assert facts["ops"]["aten.conv2d.default"] == 1
    assert facts["nodes"] == sum(facts["ops"].values()) == len(load_ir("net.json"))
    files = ("net.json", "net.weights.safetensors")
    assert facts["files"] == {name: Path(name).stat().st_size for name in files}


def test_show_prints_text_that_parses_back(npu: Command) -> None:
    assert parse_ir(npu("show net.json")) == load_ir("net.json")


def test_show_writes_a_drawing_to_a_file(npu: Command, tmp_path: Path) -> None:
    picture = tmp_path / "net.svg"

    assert npu("show net.json -o", str(picture)) == f"wrote {picture}\n"
    assert "<svg" in picture.read_text()


def test_run_saves_what_the_graph_returns(npu: Command, tmp_path: Path) -> None:
    x, graph, output = torch.randn(2, 3, 8, 8), load_ir("net.json"), tmp_path / "result.safetensors"
    torch.save(x, tmp_path / "x.pt")

    printed = npu("run net.json", "--input", f"x=@{tmp_path / 'x.pt'}", "--output", str(output))

    expected = execute_ir(graph, (), {"x": x}, weights=load_weights("net.json", graph))
    saved = load_file(output)
    assert torch.equal(saved["result['mean']"], expected["mean"])
    assert torch.equal(saved["result['best']"], expected["best"])
    assert f"result['best']   i64[2]  {expected['best'].tolist()}\n" in printed
    assert "result['scale']  1.0\n" in printed
    assert "without result['scale']: not tensors\n" in printed
    assert "net.weights.safetensors, saved with the graph\n" in printed


def test_run_saves_results_of_any_kind_as_pt(npu: Command, tmp_path: Path) -> None:
    npu("run bare.json --random-weights 3 --output", str(tmp_path / "result.pt"))

    saved = torch.load(tmp_path / "result.pt", weights_only=True)
    assert saved["result['scale']"] == 1.0
    assert saved["updated bn.num_batches_tracked"].dtype == torch.int64
    assert saved["result['mean']"].isfinite().all()


@pytest.mark.parametrize("seed", [-(2**63), 2**64 - 1])
def test_any_seed_of_pytorch_is_one_of_a_command(seed: int, npu: Command) -> None:
    printed = npu(f"run net.json --random-weights={seed} --seed={seed}")

    assert f"seed {seed}" in printed


def test_run_gives_the_same_for_the_same_seed(npu: Command, tmp_path: Path) -> None:
    def run(seeds: str) -> torch.Tensor:
        npu(f"run net.json {seeds} --output", str(tmp_path / "result.pt"))
        return torch.load(tmp_path / "result.pt")["result['mean']"]

    first = run("--random-weights 1 --seed 5")

    assert torch.equal(run("--random-weights 1 --seed 5"), first)
    assert not torch.equal(run("--random-weights 2 --seed 5"), first)
    assert not torch.equal(run("--random-weights 1 --seed 6"), first)
    assert torch.equal(run("--random-weights"), run("--random-weights 0"))


def test_results_that_cannot_be_written_leave_nothing(tmp_path: Path) -> None:
    with pytest.raises(
        SerializationError, match="the results cannot be written: No such file or .*\n  at: .*result"
    ):
        save_results({"result": torch.ones(1)}, tmp_path / "missing" / "result.pt")

    assert not list(tmp_path.iterdir())


def test_a_name_that_stdout_cannot_encode_is_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii"))

    code = main(["extract", "net.py:Sum", "--input", "f32[1]", "--name", "größe"])

    assert code == 0
    assert written.getvalue().startswith(b"graph    gr\\xf6\\xdfe\n")


def run_process(*command: str) -> subprocess.CompletedProcess[str]:
    # Buffered, as a user's Python is: what is left in the buffer must not be reported when Python ends.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return subprocess.run(command, text=True, capture_output=True, env=environment, check=False)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is full")
def test_output_that_finds_no_space_is_an_error_of_one_line_and_the_fix() -> None:
    done = run_process("sh", "-c", f"{sys.executable} -m npu_ir.cli show net.json >/dev/full")

    assert done.returncode == 1
    assert done.stderr == (
        "npu: error: the output cannot be written: No space left on device\n  fix: make space where it goes\n"
    )


@pytest.mark.skipif(sys.platform == "win32", reason="needs a POSIX shell")
def test_a_reader_that_stops_early_is_no_error() -> None:
    command = f"{sys.executable} -m npu_ir.cli show net.json; echo $? >code"

    done = run_process("sh", "-c", f"({command}) | true")

    assert done.stderr == ""
    assert Path("code").read_text().strip() == "141"
