"""Output, files and exit code of ``npu opt``."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from npu_ir import Graph, execute_ir, extract_ir, load_ir, save_ir
from npu_ir.cli import main
from npu_ir.plugins import plugin_manager
from npu_passes import Pass, Pipeline
from npu_passes.cli.reports import flops_text
from tests.support.corpus.case import Function
from tests.support.passes.sample_passes import Failing, Restless
from tests.support.rows import each_row

Capture = pytest.CaptureFixture[str]


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = torch.relu(self.linear(x))
        second = torch.relu(first * 2)
        return second + torch.relu(first - 1)


class Clamp(Pass):
    """Turn ``relu(x)`` into ``clamp_min(x, bound)``.

    Attributes:
        bound: The smallest value.
        keep: Names of nodes to leave alone.
    """

    name = "clamp"
    is_idempotent = True
    bound: float = 0.0
    keep: tuple[str, ...] = ()

    def run(self, graph: Graph) -> bool:
        edited = False
        for relu in list(graph.nodes_of("aten.relu.default")):
            if relu.name in self.keep:
                self.refuse(relu, "it is to be kept", rule="to-clamp")
                continue
            with self.rewrite(graph, "to-clamp", relu) as edit:
                edit.replace(
                    relu.outputs[0],
                    edit.call("aten.clamp_min.default", relu.inputs[0], self.bound, name="clamp"),
                )
            edited = True
        return edited


class DoubleWrongly(Pass):
    """Turn ``x * 2`` into ``x + x``, and ``x - 1`` into what it is not."""

    name = "double-wrongly"
    is_idempotent = True

    def run(self, graph: Graph) -> bool:
        found = list(graph.nodes_of("aten.mul.Tensor", "aten.sub.Tensor"))
        for node in found:
            with self.rewrite(graph, "double", node) as edit:
                x = node.inputs[0]
                edit.replace(node.outputs[0], edit.call("aten.add.Tensor", x, x))
        return bool(found)


@pytest.fixture(autouse=True)
def _in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    plugins = plugin_manager.get_plugins()
    for item in (Clamp, DoubleWrongly, Failing, Restless):
        monkeypatch.setitem(plugins.passes, item.name, item)
    monkeypatch.setitem(plugins.pipelines, "clamping", Pipeline("clamping", "clamp", "Clamps."))


@pytest.fixture
def model() -> Iterator[Net]:
    """A model whose graph is in net.json, and with its weights in full.json."""
    model = Net().eval()
    graph = extract_ir(model, (torch.ones(2, 4),), name="net")
    save_ir(graph, "net.json")
    save_ir(graph, "full.json", weights=model.state_dict())
    return model


pytestmark = pytest.mark.usefixtures("model")


def opt(*words: str) -> int:
    return main(["opt", *words])


def test_the_graph_that_the_passes_make_is_saved(model: Net, capsys: Capture) -> None:
    x = torch.randn(2, 4)

    code = opt("net.json", "-o", "fast.json", "--passes", "clamp{keep=[relu]}")

    printed = capsys.readouterr()
    graph = load_ir("fast.json")
    assert (code, printed.err) == (0, "")
    assert (
        "passes  clamp{keep=[relu]}\nnodes   7 -> 7\nrounds  1, 2 rewrites, 1 refused\nsaved   fast.json, "
        in printed.out
    )
    assert [node.op_type for node in graph.nodes].count("aten.clamp_min.default") == 2
    assert torch.equal(execute_ir(graph, (x,), weights=model.state_dict()), model(x))
    assert load_ir("net.json") != graph


def test_a_graph_that_is_not_saved_is_said_to_be_lost(capsys: Capture) -> None:
    assert opt("net.json", "--passes", "clamp") == 0

    assert "saved   nothing: -o FILE saves the graph\n" in capsys.readouterr().out


def test_weights_that_were_saved_with_the_graph_are_not_copied(capsys: Capture) -> None:
    assert opt("net.json", "-o", "fast.json", "--passes", "clamp") == 0
    assert opt("full.json", "--passes", "clamp") == 0
    assert "weights" not in capsys.readouterr().out

    assert opt("full.json", "-o", "fast.json", "--passes", "clamp") == 0
    assert "weights  not copied: npu run fast.json --weights full.json\n" in capsys.readouterr().out
    assert main(["run", "fast.json", "--weights", "full.json"]) == 0
    assert main(["run", "fast.json"]) == 2
    assert "was saved without them" in capsys.readouterr().err


def test_a_pipeline_goes_by_its_name_and_without_an_output_nothing_is_saved(
    capsys: Capture, tmp_path: Path
) -> None:
    before = set(tmp_path.iterdir())

    assert opt("net.json", "--pipeline", "clamping") == 0

    assert set(tmp_path.iterdir()) == before
    assert "passes  clamp\n" in capsys.readouterr().out


def test_stats_show_what_each_pass_changed(capsys: Capture) -> None:
    assert opt("net.json", "--passes", "clamp,double-wrongly", "--stats") == 0

    table = capsys.readouterr().out.split("\n\n")[0]
    rows = [line.split() for line in table.splitlines()]
    assert " ".join(rows[0]) == "pass runs rewrites nodes prologue parameters constants FLOPs time"
    assert rows[1] == ["before", "7", "0", "20", "0", "B", "64"]
    assert rows[2][:3] == ["clamp", "2", "3"]
    assert rows[3][:3] == ["double-wrongly", "1", "2"]
    assert rows[4][:10] == ["after", "2", "rounds", "5", "7", "0", "20", "0", "B", "64"]


@pytest.fixture
def open_graph() -> str:
    batch = torch.export.Dim("batch", min=2, max=64)
    save_ir(extract_ir(Net(), (torch.ones(3, 4),), dynamic_shapes=({0: batch},)), "open.json")
    return "open.json"


def test_operations_that_are_not_known_are_said_to_be_missing(open_graph: str, capsys: Capture) -> None:
    assert opt(open_graph, "--passes", "clamp", "--stats") == 0

    assert "FLOPs without 1 node whose operations are not known\n" in capsys.readouterr().out


def cells(table: str) -> list[str]:
    return [" ".join(row.split()) for row in table.splitlines()]


def test_explain_shows_rewrites_and_says_refusals_for_one_reason_once(capsys: Capture) -> None:
    branches = Function(lambda x: torch.cond(x.sum() > 0, lambda x: x.relu(), lambda x: x.relu() - 1, (x,)))
    save_ir(extract_ir(branches, (torch.ones(4),)), "branches.json")

    assert opt("net.json", "--passes", "clamp{keep=[relu,relu_1]}", "--explain") == 0
    made, refused, _ = capsys.readouterr().out.split("\n\n")
    assert opt("branches.json", "--passes", "clamp", "--explain") == 0
    made_in_regions = capsys.readouterr().out.split("\n\n")[0]

    assert cells(made) == ["rewrite by rule nodes made", "clamp to-clamp relu_2 clamp"]
    assert cells(refused) == ["refused by rule nodes because", "clamp to-clamp relu, relu_1 it is to be kept"]
    nodes = [row.split()[2] for row in cells(made_in_regions)[1:]]
    assert nodes == ["cond.true_fn/relu", "cond.false_fn/relu"]


def test_explain_gathers_what_one_rule_did_to_many_nodes_and_cuts_long_lists(capsys: Capture) -> None:
    chain = torch.nn.Sequential(*(torch.nn.Flatten(0) for _ in range(9)))
    save_ir(extract_ir(chain, (torch.ones(4),)), "chain.json")

    assert opt("chain.json", "--passes", "elim-identity", "--explain") == 0

    rewritten = capsys.readouterr().out.split("\n\n")[0]
    nodes = "flatten, flatten_1, ..., flatten_7, flatten_8 (9 in all)"
    assert cells(rewritten)[1:] == [f"elim-identity view {nodes}"]


def test_json_holds_all_of_it(capsys: Capture) -> None:
    assert opt("net.json", "--passes", "clamp{keep=[relu]}", "--json") == 0

    data = json.loads(capsys.readouterr().out)
    assert (data["graph"], data["rounds"], data["converged"]) == ("net", 1, True)
    assert data["before"]["nodes"] == data["after"]["nodes"] == 7
    assert data["passes"][0]["before"] == data["before"]
    assert (data["before"]["flops"], data["before"]["unknown_flops"]) == (2 * 2 * 4 * 4, 0)
    assert data["passes"][0]["text"] == "clamp{keep=[relu]}"
    assert data["rewrites"][0] == {
        "pass_name": "clamp", "rule": "to-clamp", "nodes": ["relu_1"], "made": ["clamp"], "region": ""
    }  # fmt: skip
    assert data["refusals"] == [
        {"pass_name": "clamp", "rule": "to-clamp", "node": "relu", "reason": "it is to be kept", "region": ""}
    ]


def test_passes_that_find_no_end_are_a_warning(capsys: Capture) -> None:
    assert opt("net.json", "-o", "fast.json", "--passes", "restless", "--max-rounds", "3") == 0

    printed = capsys.readouterr()
    assert "rounds  3, 3 rewrites" in printed.out
    assert printed.err == "npu: warning: not converged after 3 rounds: a larger --max-rounds allows more\n"
    assert Path("fast.json").exists()


def test_states_of_the_graph_are_dumped(capsys: Capture) -> None:
    assert opt("net.json", "--passes", "clamp,double-wrongly", "--dump-dir", "states") == 0

    assert sorted(path.name for path in Path("states").iterdir()) == [
        "00-input.ir", "01-clamp.ir", "02-double-wrongly.ir"
    ]  # fmt: skip
    assert "dumps   3 files in states\n" in capsys.readouterr().out


def test_check_accepts_what_keeps_results(capsys: Capture) -> None:
    codes = [
        opt("net.json", "--passes", "clamp", "--check"),
        opt("full.json", "--passes", "clamp", "--check"),
        opt("net.json", "--passes", "clamp", "--check", "--weights", "full.weights.safetensors"),
        opt("full.json", "--passes", "clamp", "--check", "--random-weights", "3"),
    ]

    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("checked")]
    assert codes == [0, 0, 0, 0]
    assert lines == [
        "checked  after each pass; weights: random, seed 0",
        "checked  after each pass; weights: full.weights.safetensors, saved with the graph",
        "checked  after each pass; weights: full.weights.safetensors",
        "checked  after each pass; weights: random, seed 3",
    ]


def test_check_fails_where_results_differ_and_saves_nothing(capsys: Capture) -> None:
    Path("fast.json").write_text("mine")

    code = opt("net.json", "-o", "fast.json", "--passes", "double-wrongly", "--check")

    error = capsys.readouterr().err
    assert code == 1
    assert "npu: error: double-wrongly changed what graph 'net' computes: result differs by " in error
    assert Path("fast.json").read_text() == "mine"


def test_checks_run_on_the_sizes_that_are_given(open_graph: str, capsys: Capture) -> None:
    words = [open_graph, "--passes", "clamp", "--check", "--size"]

    assert [opt(*words, "batch=5"), opt(*words, "batch=100")] == [0, 2]
    assert "the size 'batch' cannot be 100" in capsys.readouterr().err


def test_checks_run_on_the_inputs_that_are_given() -> None:
    torch.save(torch.full((2, 4), 0.0), "x.pt")
    zeros = {"linear.weight": torch.zeros(4, 4), "linear.bias": torch.ones(4)}
    torch.save(zeros, "weights.pt")

    options = ["--check", "--weights", "weights.pt", "--input", "x=@x.pt"]

    assert opt("net.json", "--passes", "clamp{bound=0.0}", *options) == 0
    assert opt("net.json", "--passes", "clamp{bound=0.5}", *options) == 1


def test_bisect_names_the_rewrite_and_writes_what_shows_it(capsys: Capture) -> None:
    code = opt("net.json", "-o", "fast.json", "--passes", "clamp,double-wrongly", "--bisect")

    lines = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    shown = subprocess.run(
        [sys.executable, "fast.repro/repro.py"], capture_output=True, text=True, check=True
    )
    assert code == 1
    assert lines["pass"] == "double-wrongly"
    assert lines["rewrite"] == "double, number 5 of those of all passes"
    assert lines["nodes"] == "sub"
    assert lines["problem"].startswith("result differs by ")
    assert lines["shown"] == "by  fast.repro/repro.py"
    assert shown.stdout.startswith("result differs by ")
    assert not Path("fast.json").exists()


def test_pipelines_are_named_among_passes(capsys: Capture) -> None:
    assert opt("net.json", "--passes", "minimal,clamp", "--stats") == 0

    shown = capsys.readouterr().out
    assert shown.index("canonicalize") < shown.index("elim-identity") < shown.index("clamp")


def test_bisect_goes_on_where_no_rewrite_changes_results(capsys: Capture) -> None:
    code = opt("net.json", "-o", "fast.json", "--passes", "clamp", "--bisect", "--repro-dir", "shown")

    assert code == 0
    assert "checked  no rewrite changes results; weights: random, seed 0\n" in capsys.readouterr().out
    assert Path("fast.json").exists()
    assert not Path("shown").exists()


def test_bisect_takes_a_tolerance_and_a_folder(capsys: Capture) -> None:
    words = ["net.json", "--passes", "double-wrongly", "--bisect", "--repro-dir", "shown", "--json"]

    codes = [opt(*words, "--rtol", "100"), opt(*words)]

    assert codes == [0, 1]
    assert Path("shown", "repro.py").exists()
    assert '"culprit"' in capsys.readouterr().out


@each_row("words, message", [
    ("--passes clmap", "there is no pass 'clmap' (did you mean 'clamp'?)"),
    ("--passes clamp{low=1}", "clamp has no option 'low' (at passes 'clamp{low=1}')"),
    ("--passes clamp{bound=x}", "the option 'bound' is a float, not x"),
    ("--passes restless{a=1}", "fix: it has no options"),
    ("--passes constant-folding{max_bytes=-1}", "is a number of bytes, not -1"),
    ("--passes decompose{ops=[aten.nope.default]}", "'aten.nope.default', and there is no"),
    ("--pipeline clampin", "there is no pipeline 'clampin' (did you mean 'clamping'?)"),
    ("--passes clamp --pipeline clamping", "not allowed with argument"),
    ("--passes clamp --max-rounds 0", "--max-rounds 0: passes run in"),
    ("--passes clamp --random-weights 0", "passes do not use weights or inputs\n  fix: "),
    ("--seed 0", "passes do not use weights or inputs"),
    ("--int-high 2", "passes do not use weights or inputs"),
    ("--check --rtol 1", "--rtol and --repro-dir are for --bisect\n  fix: add"),
    ("--bisect --rtol -1", "--rtol: a tolerance is finite"),
    ("--bisect --rtol nan", "a tolerance is finite"),
    ("--bisect --rtol x", "argument --rtol: 'x' is not a number"),
    ("--passes clamp --check --input y=f32[2]", "the graph has no input 'y'"),
    ("--passes clamp -o no/such/folder.json", "there is no folder no/such"),
])  # fmt: skip
def test_wrong_usage_is_said(words: Any, message: Any, capsys: Capture) -> None:
    code = opt("net.json", *words.split())

    assert (code, message in capsys.readouterr().err) == (2, True)


def test_a_pass_that_fails_is_said(capsys: Capture) -> None:
    assert opt("net.json", "--passes", "failing") == 1
    assert "failing: attempt failed: " in capsys.readouterr().err


def test_a_graph_that_was_saved_with_weights_is_not_saved_over(capsys: Capture) -> None:
    before = Path("full.json").read_bytes()

    assert opt("full.json", "-o", "./full.json", "--passes", "clamp") == 2
    assert (
        "full.json was saved with its weights, which a graph in its place would lose"
        in capsys.readouterr().err
    )
    assert Path("full.json").read_bytes() == before
    assert opt("net.json", "-o", "net.json", "--passes", "clamp") == 0


def test_operations_are_counted_in_the_unit_that_fits() -> None:
    counts = [0, 999, 1_000, 3_640_000_000, 999_600, 2 * 10**18]

    assert [flops_text(count) for count in counts] == ["0", "999", "1 K", "3.64 G", "1 M", "2e+03 P"]


WRITTEN = """
from npu_passes import Pass

count = 3

class Nothing(Pass):
    '''Change nothing.'''

    name = "nothing-at-all"
    limit: int = 1

    def run(self, graph):
        print("limit", self.limit)
        return False
"""


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Save a graph, and a file with a pass beside it, in the current folder."""
    monkeypatch.chdir(tmp_path)
    Path("written.py").write_text(WRITTEN)
    save_ir(extract_ir(torch.nn.ReLU(), (torch.ones(2),)), "relu.json")
    return "relu.json"


def test_a_pass_of_a_file_runs_beside_others(saved: str, capsys: Capture) -> None:
    assert main(["opt", saved, "--passes", "cse,written.py:Nothing{limit=4}"]) == 0

    assert "limit 4" in capsys.readouterr().out


@each_row("passes, message", {
    "no pass": ("written.py:count", "written.py:count is not a pass but 3\n  fix: name a class derived from"),
    "no class": ("written.py:Nothign", "written.py has no Nothign (did you mean 'Nothing'?)"),
    "no file": ("absent.py:Nothing", "there is no file absent.py"),
    "no option": ("written.py:Nothing{max=1}", "nothing-at-all has no option 'max'"),
})  # fmt: skip
def test_a_file_without_the_pass_is_refused(passes: str, message: str, saved: str, capsys: Capture) -> None:
    assert main(["opt", saved, "--passes", passes]) == 2

    assert message in capsys.readouterr().err
