"""Ops of npu-passes are known to a process that imports npu_ir alone, where npu-passes is installed."""

from pathlib import Path

import pytest
import torch
from torch import nn

from npu_ir import extract_ir, save_ir
from npu_passes import optimize
from tests.support.processes import run_python

SCRIPT = """
import sys
import torch
from npu_ir import execute_ir, load_ir, parse_ir

folder, form = sys.argv[1:]
assert "npu_passes" not in sys.modules
graph = load_ir(f"{folder}/net.json") if form == "file" else parse_ir(open(f"{folder}/net.txt").read())
x, expected = torch.load(f"{folder}/call.pt")
torch.testing.assert_close(execute_ir(graph, (x,), weights=f"{folder}/net.json"), expected)
"""


@pytest.mark.parametrize("form", ["file", "text"])
def test_a_prologue_of_ops_of_npu_passes_is_read_without_an_import(form: str, tmp_path: Path) -> None:
    model, x = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).eval(), torch.randn(1, 3, 8, 8)
    graph = optimize(extract_ir(model, (x,)))
    save_ir(graph, tmp_path / "net.json", weights=model.state_dict())
    (tmp_path / "net.txt").write_text(str(graph))
    torch.save((x, model(x).detach()), tmp_path / "call.pt")

    finished = run_python(SCRIPT, str(tmp_path), form)

    assert [node.op_type for node in graph.prologue] == ["npu.fold_batch_norm.default"]
    assert finished.returncode == 0, finished.stderr
