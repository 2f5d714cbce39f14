"""The folder that shows what a rewrite did runs on its own, whatever the model takes and returns."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from npu_ir import Graph, GraphError, extract_ir
from npu_passes import Checked, Culprit, Pass, PassError, bisect
from tests.support.corpus.case import Function, Holding
from tests.support.passes.sample_passes import RELU, BreakShapes

X = torch.tensor([[1.0, -2.0], [3.0, 4.0]])


@dataclasses.dataclass
class Batch:
    """What a model may take."""

    x: Tensor
    scale: float


torch.export.register_dataclass(Batch)


class ReluToNeg(Pass):
    """Change what a graph computes."""

    name = "relu-to-neg"

    def run(self, graph: Graph) -> bool:
        found = list(graph.nodes_of(RELU))
        for node in found:
            with self.rewrite(graph, "to-neg", node) as edit:
                edit.replace(node.outputs[0], edit.call("aten.neg.default", node.inputs[0]))
        return bool(found)


def updates(self: Any, x: Tensor) -> Tensor:
    self.total.add_(x.relu())
    return x


def said_here(folder: Path) -> str:
    """Return what the script says, run in this process."""
    with contextlib.redirect_stdout(io.StringIO()) as said:
        runpy.run_path(str(folder / "repro.py"))
    return said.getvalue()


def said_elsewhere(folder: Path) -> str:
    """Return what the script says in a process that knows nothing of this one."""
    command = [sys.executable, "-W", "ignore", str(folder / "repro.py")]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(("model", "said"), [
    pytest.param(Function(lambda x: x.relu() > 0), "result differs in 4 of 4 elements", id="bools"),
    pytest.param(Function(lambda x: x.relu().to_sparse()), "result differs by 2", id="sparse"),
    pytest.param(Function(lambda x: torch.complex(x, x.relu())), "result differs by 2", id="complex"),
    pytest.param(Holding(updates, total=torch.zeros(2, 2)), "the update of total differs by", id="an update"),
    pytest.param(nn.Sequential(nn.Linear(2, 2), nn.ReLU()), "result differs by", id="weights"),
])  # fmt: skip
def test_the_script_says_what_bisect_said(model: nn.Module, said: str, tmp_path: Path) -> None:
    torch.save(model.state_dict(), tmp_path / "given.pt")
    data = Checked(weights=tmp_path / "given.pt", calls=[((X,), {})])

    culprit = bisect(extract_ir(model, (X,)), [ReluToNeg], data=data, repro_dir=tmp_path / "repro")

    assert culprit.difference.startswith(said)
    assert said_here(tmp_path / "repro") == f"{culprit.difference}\n"
    kept = torch.load(tmp_path / "repro" / "weights.pt")
    assert all(torch.equal(kept[name], weight) for name, weight in model.state_dict().items())


def test_the_script_needs_no_class_that_the_model_takes(tmp_path: Path) -> None:
    args = (Batch(X, 2.0),)
    graph = extract_ir(Function(lambda batch: batch.x.relu() * batch.scale), args)

    culprit = bisect(graph, [ReluToNeg], data=Checked(calls=[(args, {})]), repro_dir=tmp_path)

    assert isinstance(culprit, Culprit)
    assert said_elsewhere(tmp_path) == f"{culprit.difference}\n"


def test_the_script_names_every_result_that_differs(tmp_path: Path) -> None:
    model = Function(lambda x: (lambda once: {"a": once, "b": x, "c": once * 2})(x.relu()))

    bisect(extract_ir(model, (X,)), [ReluToNeg], repro_dir=tmp_path)

    first, second = said_here(tmp_path).splitlines()
    assert first.startswith("result['a'] differs by")
    assert second.startswith("result['c'] differs by")


def test_a_graph_that_is_no_valid_program_any_more_is_written_as_text(tmp_path: Path) -> None:
    graph = extract_ir(nn.Sequential(nn.ReLU(), nn.ReLU()), (X,))

    culprit = bisect(graph, [BreakShapes], repro_dir=tmp_path)

    assert culprit is not None
    assert "nonsense=1" in (tmp_path / "after.ir").read_text()
    with pytest.raises(GraphError, match="has no argument 'nonsense'"):
        said_here(tmp_path)


def test_what_was_found_is_said_where_the_folder_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    graph = extract_ir(nn.ReLU(), (X,))

    with pytest.raises(PassError, match=r"cannot be written: .*; it is of relu-to-neg: rewrite 1, 'to-neg'"):
        bisect(graph, [ReluToNeg], repro_dir=tmp_path / "file" / "repro")
