"""Output, files and exit code of each ``npu`` command."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from npu_ir import execute_ir, load_ir, load_weights, parse_ir
from npu_ir.cli import main
from npu_ir.cli.factory import make_model
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
INPUT = "x=f32[2, 3, 8, 8]"

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Holds the model, and its graph with and without weights."""
    folder = tmp_path_factory.mktemp("cli")
    (folder / "net.py").write_text(MODEL)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "path", [*sys.path])
        torch.manual_seed(0)
        assert main(["extract", "net.py:Net", "--input", INPUT, "-o", "net.json", "--save-weights"]) == 0
        assert main(["extract", "net.py:Net", "--input", INPUT, "-o", "bare.json", "--meta", "--train"]) == 0
    yield folder
    for name in [name for name in sys.modules if name.partition(":")[0] == "net"]:
        del sys.modules[name]


@pytest.fixture(autouse=True)
def _in_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [*sys.path])


def test_extract_says_what_the_graph_holds(capsys: Capture) -> None:
    code = main(["extract", "net.py:Net", "--input", INPUT, "--name", "tiny"])

    printed = capsys.readouterr().out
    assert code == 0
    assert "graph       tiny\n" in printed
    assert "inputs      x: f32[2, 3, 8, 8]\n" in printed
    assert "result['scale']: always 1.0\n" in printed
    assert "parameters  4 tensors, 120 elements, 480 B f32\n" in printed
    assert "buffers     3 tensors, 9 elements, 32 B f32, 8 B i64\n" in printed
    assert printed.rstrip().endswith("s to extract")
    assert "saved" not in printed


def test_a_saved_graph_and_its_weights_compute_what_the_model_computes(folder: Path) -> None:
    x = torch.randn(2, 3, 8, 8)

    graph = load_ir(folder / "net.json")
    result = execute_ir(graph, (), {"x": x}, weights=load_weights(folder / "net.json", graph))

    torch.manual_seed(0)
    model = make_model("net.py:Net")
    assert torch.equal(result["mean"], model(x)["mean"])


def test_a_model_made_on_meta_in_train_mode_keeps_its_buffer_updates(folder: Path) -> None:
    graph = load_ir(folder / "bare.json")

    assert {target.name for target in graph.updates} == {
        "bn.running_mean",
        "bn.running_var",
        "bn.num_batches_tracked",
    }
    assert not (folder / "bare.weights.safetensors").exists()


def test_a_graph_that_cannot_be_captured_leaves_no_file(folder: Path, capsys: Capture) -> None:
    code = main(["extract", "net.py:Net", "--input", "x=f32[7]", "-o", "broken.json"])

    assert code == 1
    assert capsys.readouterr().err.startswith("npu: error: torch.export cannot capture Net: ")
    assert not list(folder.glob("broken*"))


@each_row("arguments, message", [
    (["--save-weights"], "--save-weights needs a place\n  fix: give -o FILE"),
    (["--save-weights", "--meta", "-o", "no.json"],
        "a model made with --meta has no weights to save\n  fix: leave out one of the two")
])  # fmt: skip
def test_weights_that_cannot_be_saved_are_refused(
    arguments: list[str], message: str, capsys: Capture
) -> None:
    code = main(["extract", "net.py:Net", "--input", INPUT, *arguments])

    assert code == 2
    assert capsys.readouterr().err == f"npu: error: {message}\n"


def test_info_prints_json_that_tells_sizes_and_ops(folder: Path, capsys: Capture) -> None:
    code = main(["info", "net.json", "--json"])

    facts = json.loads(capsys.readouterr().out)
    assert code == 0
    assert facts["name"] == "Net"
    assert facts["torch"] == torch.__version__
    assert facts["inputs"] == [{"name": "x", "type": "f32[2, 3, 8, 8]"}]
    assert facts["outputs"][0] == {"path": "result['mean']", "type": "f32[2, 4]"}
    assert facts["parameters"] == {"count": 4, "elements": 120, "bytes": 480, "bytes_by_dtype": {"f32": 480}}
    assert facts["ops"]["aten.conv2d.default"] == 1
    assert facts["nodes"] == sum(facts["ops"].values()) == len(load_ir("net.json"))
    assert facts["files"] == {
        name: (folder / name).stat().st_size for name in ("net.json", "net.weights.safetensors")
    }


def test_info_counts_the_ops(capsys: Capture) -> None:
    main(["info", "net.json"])

    printed = capsys.readouterr().out
    assert "1  aten.conv2d.default\n" in printed
    assert f"made with   PyTorch {torch.__version__}, format 1\n" in printed


def test_show_prints_text_that_parses_back(capsys: Capture) -> None:
    code = main(["show", "net.json"])

    assert code == 0
    assert parse_ir(capsys.readouterr().out) == load_ir("net.json")


def test_show_adds_source_lines_if_asked(capsys: Capture) -> None:
    main(["show", "net.json", "--provenance"])

    assert "# conv, " in capsys.readouterr().out


@each_row("option, start", [("--mermaid", "---\ntitle:"), ("--dot", "digraph")])
def test_show_prints_drawings(option: str, start: str, capsys: Capture) -> None:
    code = main(["show", "net.json", option, "--depth", "1", "--max-nodes", "10"])

    assert code == 0
    assert capsys.readouterr().out.startswith(start)


def test_show_writes_a_drawing_to_a_file(tmp_path: Path, capsys: Capture) -> None:
    picture = tmp_path / "net.svg"

    code = main(["show", "net.json", "-o", str(picture)])

    assert code == 0
    assert capsys.readouterr().out == f"wrote {picture}\n"
    assert "<svg" in picture.read_text()


@each_row(
    "arguments, message",
    [
        (["--max-nodes", "3"], "--max-nodes is for drawings\n  fix: add --mermaid, --dot or -o FILE"),
        (["--mermaid", "--provenance"], "--provenance is for the text form\n"),
    ],
)
def test_options_of_another_form_are_refused(arguments: list[str], message: str, capsys: Capture) -> None:
    code = main(["show", "net.json", *arguments])

    assert code == 2
    assert capsys.readouterr().err.startswith(f"npu: error: {message}")


def test_run_saves_what_the_graph_returns(tmp_path: Path, capsys: Capture) -> None:
    x = torch.randn(2, 3, 8, 8)
    torch.save(x, tmp_path / "x.pt")
    output = tmp_path / "result.safetensors"

    code = main(["run", "net.json", "--input", f"x=@{tmp_path / 'x.pt'}", "--output", str(output)])

    graph = load_ir("net.json")
    expected = execute_ir(graph, (), {"x": x}, weights=load_weights("net.json", graph))
    saved = load_file(output)
    printed = capsys.readouterr().out
    assert code == 0
    assert torch.equal(saved["result['mean']"], expected["mean"])
    assert torch.equal(saved["result['best']"], expected["best"])
    assert f"result['best']   i64[2]  {expected['best'].tolist()}\n" in printed
    assert "result['scale']  1.0\n" in printed
    assert "without result['scale']: not tensors\n" in printed
    assert "net.weights.safetensors, saved with the graph\n" in printed


def test_run_saves_results_of_any_kind_as_pt(tmp_path: Path) -> None:
    output = tmp_path / "result.pt"

    main(["run", "bare.json", "--random-weights", "3", "--output", str(output)])

    saved = torch.load(output, weights_only=True)
    assert saved["result['scale']"] == 1.0
    assert saved["updated bn.num_batches_tracked"].dtype == torch.int64
    assert saved["result['mean']"].isfinite().all()


def test_run_gives_the_same_for_the_same_seed(tmp_path: Path) -> None:
    def run(*arguments: str) -> torch.Tensor:
        assert main(["run", "net.json", *arguments, "--output", str(tmp_path / "result.pt")]) == 0
        result: torch.Tensor = torch.load(tmp_path / "result.pt")["result['mean']"]
        return result

    first = run("--random-weights", "1", "--seed", "5")

    assert torch.equal(run("--random-weights", "1", "--seed", "5"), first)
    assert not torch.equal(run("--random-weights", "2", "--seed", "5"), first)
    assert not torch.equal(run("--random-weights", "1", "--seed", "6"), first)


def test_run_names_the_inputs_it_made_up(capsys: Capture) -> None:
    main(["run", "net.json"])

    assert "random data  %x: f32[2, 3, 8, 8], seed 0\n" in capsys.readouterr().out


def test_random_integers_stay_below_the_bound(capsys: Capture) -> None:
    main(["extract", "net.py:Tokens", "--input", "input=i64[3]", "-o", "tokens.json", "--save-weights"])

    codes = [main(["run", "tokens.json", "--int-high", high]) for high in ("50", "5000")]

    assert codes == [0, 1]
    assert (
        "npu: error: aten.embedding.default failed: IndexError: index out of range" in capsys.readouterr().err
    )


def test_a_graph_without_weights_needs_none(capsys: Capture) -> None:
    main(["extract", "net.py:Sum", "--input", "f64[5]", "-o", "sum.json"])

    code = main(["run", "sum.json"])

    assert code == 0
    assert "weights      none needed\n" in capsys.readouterr().out


def test_missing_weights_are_reported_before_anything_runs(capsys: Capture) -> None:
    code = main(["run", "bare.json"])

    error = capsys.readouterr().err
    assert code == 2
    assert error.startswith(
        "npu: error: the graph needs 7 weights, and was saved without them\n  fix: --weights FILE"
    )


def test_results_in_an_unknown_format_are_refused_before_anything_runs(capsys: Capture) -> None:
    code = main(["run", "nothing.json", "--output", "result.txt"])

    assert code == 2
    assert capsys.readouterr().err.startswith(
        "npu: error: results cannot be saved as 'result.txt'\n  fix: use .safetensors"
    )


def test_results_that_cannot_be_written_leave_nothing(tmp_path: Path) -> None:
    with pytest.raises(
        SerializationError, match="cannot write the results: No such file or directory\n  at: .*result"
    ):
        save_results({"result": torch.ones(1)}, tmp_path / "missing" / "result.pt")

    assert not list(tmp_path.iterdir())


def test_verify_accepts_the_model_of_the_graph(capsys: Capture) -> None:
    code = main(["verify", "net.json", "net.py:Net", "--weights", "net.weights.safetensors"])

    printed = capsys.readouterr().out
    assert code == 0
    assert printed.startswith("graph and model agree: 3 results and 0 mutations, max difference ")
    assert printed.endswith("random inputs, seed 0: %x: f32[2, 3, 8, 8]\n")


def test_verify_in_train_mode_compares_the_buffers_too(capsys: Capture) -> None:
    code = main(["verify", "bare.json", "net.py:Net", "--train"])

    assert code == 0
    assert "3 results and 3 mutations" in capsys.readouterr().out


def test_verify_names_the_first_node_that_differs(capsys: Capture) -> None:
    code = main(["verify", "net.json", "net.py:Wrong"])

    printed = capsys.readouterr().out
    assert code == 1
    assert "result['mean']: 8 of 8 elements differ by more than" in printed
    assert "first diverging node: node 'batch_norm', bn, " in printed


def test_verify_takes_the_tolerance_that_is_given(capsys: Capture) -> None:
    codes = [main(["verify", "net.json", "net.py:Wrong", "--atol", atol]) for atol in ("0.001", "1e9")]

    assert codes[0] == 1
    assert "differ by more than 0.001 + 1.3e-06 * |expected|" in capsys.readouterr().out


@each_row("command", [
    lambda: main(["info", "missing.json"]),
    lambda: main(["show", "missing.json"]),
    lambda: main(["run", "missing.json"]),
    lambda: main(["verify", "missing.json", "net.py:Net"]),
])  # fmt: skip
def test_a_graph_that_is_not_there_is_an_error(command: Callable[[], int], capsys: Capture) -> None:
    code = command()

    assert code == 1
    assert (
        "npu: error: cannot be read: No such file or directory (at missing.json)\n  fix: "
        in capsys.readouterr().err
    )


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


def test_the_command_line_works_in_a_process_of_its_own() -> None:
    done = run_process(sys.executable, "-m", "npu_ir.cli", "extract", "net:Sum", "--input", "f32[3]")

    assert (done.returncode, done.stderr) == (0, "")
    assert "inputs   x: f32[3]\n" in done.stdout


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is full")
def test_output_that_finds_no_space_is_an_error_of_one_line_and_the_fix() -> None:
    done = run_process("sh", "-c", f"{sys.executable} -m npu_ir.cli show net.json >/dev/full")

    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "npu: error: the output cannot be written: No space left on device",
        "  fix: make space where it goes",
    ]


@pytest.mark.skipif(sys.platform == "win32", reason="needs a POSIX shell")
def test_a_reader_that_stops_early_is_no_error() -> None:
    command = f"{sys.executable} -m npu_ir.cli show net.json; echo $? >code"

    done = run_process("sh", "-c", f"({command}) | true")

    assert done.stderr == ""
    assert Path("code").read_text().strip() == "141"
