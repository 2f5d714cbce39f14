"""The folder that shows one node: it runs on its own and tells which side is wrong."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from npu_ir import VerificationError, extract_ir
from npu_ir.ops import register_executor, unregister_executor
from npu_runtime.diagnostics.compare import compare, float64, replay
from npu_runtime.executor.executor import IRExecutor
from tests.npu_runtime.compare_cases import Layer, changed
from tests.support.corpus.case import Function


def test_the_script_runs_on_its_own_and_tells_which_side_is_wrong(tmp_path: Path) -> None:
    model = Layer(lambda self, x: torch.nn.functional.gelu(self.linear(x["a"])).sin())
    inputs = ({"a": torch.randn(2, 4)},)
    graph = extract_ir(model, inputs)
    register_executor("aten.gelu.default")(lambda given, attrs: [torch.nn.functional.gelu(given[0]) * 1.001])
    try:
        found = compare(model, IRExecutor(graph, model.state_dict()), inputs, repro_dir=tmp_path / "repro")
    finally:
        unregister_executor("aten.gelu.default")

    assert found.repro == tmp_path / "repro"
    assert f"shown by {tmp_path / 'repro' / 'repro.py'}" in str(found)
    done = subprocess.run(
        [sys.executable, str(tmp_path / "repro" / "repro.py")],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=True,
    )
    lines = {
        line.split(": ")[0]: line
        for line in done.stdout.splitlines()
        if "from float64 on these inputs" in line
    }
    by = "this node, run by the "
    assert lines.keys() == {"a", "b", f"{by}interpreter", f"{by}executor on aten"}
    assert float(lines["a"].split()[1]) < 1e-6 < float(lines["b"].split()[1])
    assert float(lines[f"{by}interpreter"].split(": ")[1].split()[0]) < 1e-6
    assert float(lines[f"{by}executor on aten"].split(": ")[1].split()[0]) < 1e-6
    assert "aten.gelu.default(self=%linear)" in done.stdout


def test_the_last_of_many_outputs_is_found(tmp_path: Path) -> None:
    x = torch.randn(100)
    model = Function(lambda x: x.split(1)[-1] * 2)
    graph = extract_ir(model, (x,))
    register_executor("aten.split.Tensor")(lambda given, attrs: [item + 1 for item in given[0].split(1)])
    try:
        found = compare(model, graph, (x,), repro_dir=tmp_path)
    finally:
        unregister_executor("aten.split.Tensor")

    assert found.first_divergence is not None
    assert found.first_divergence.op == "aten.split.Tensor"
    assert "= aten.split.Tensor(" in replay(tmp_path)


def test_the_output_that_differs_is_the_one_that_is_shown(tmp_path: Path) -> None:
    x = torch.randn(4)
    model = Function(lambda x: x.sort()[1] * 2 + x.sort()[0])
    graph = extract_ir(model, (x,))

    def reversed_order(given: Any, attrs: Any) -> Any:
        values, order = given[0].sort()
        return [values, order.flip(0)]

    register_executor("aten.sort.default")(reversed_order)
    try:
        found = compare(model, graph, (x,), repro_dir=tmp_path)
    finally:
        unregister_executor("aten.sort.default")

    assert found.first_divergence is not None
    assert found.first_divergence.type == "i64[4]"
    text = replay(tmp_path)
    assert "\na: 0 from float64" in text
    assert "\nb: 0 from float64" not in text


def test_a_float64_side_is_shown_on_the_inputs_of_the_graph(tmp_path: Path) -> None:
    x = torch.rand(64) * 1e4
    graph = extract_ir(Function(lambda x: (x * 1000).sin()), (x,))

    found = compare(graph, float64(graph), (x,), repro_dir=tmp_path)

    assert found.first_divergence is not None
    assert found.first_divergence.name == "sin"
    assert "\na: " in replay(tmp_path)


def test_a_result_that_no_value_inside_explains_is_shown_too(tmp_path: Path) -> None:
    x = torch.randn(4)
    model = Function(lambda x: x + 1 if torch.compiler.is_exporting() else x + 2)

    found = compare(model, extract_ir(model, (x,)), (x,), repro_dir=tmp_path)

    assert found.repro == tmp_path
    assert "a: 1 from float64" in replay(tmp_path)


def test_nothing_is_written_where_nothing_differs(tmp_path: Path) -> None:
    x = torch.randn(4)
    graph = extract_ir(Function(lambda x: x + 1), (x,))

    found = compare(graph, graph, (x,), repro_dir=tmp_path / "repro")

    assert found.repro is None
    assert not (tmp_path / "repro").exists()


def test_a_folder_that_cannot_be_written_is_an_error_that_still_says_what_differs(tmp_path: Path) -> None:
    x = torch.ones(3)
    graph = extract_ir(Function(lambda x: x * 2), (x,))
    (tmp_path / "file").write_text("")

    with pytest.raises(
        VerificationError, match=r"cannot be written: .*; it is of %mul is %mul: f32\[3\] in side b"
    ):
        compare(graph, changed(graph, "{other=2}", "{other=7}"), (x,), repro_dir=tmp_path / "file")


def test_a_name_with_quotes_does_not_break_the_script(tmp_path: Path) -> None:
    x = torch.ones(3)
    graph = extract_ir(Function(lambda x: {'"""\\': x * 2}), (x,))
    other = extract_ir(Function(lambda x: {'"""\\': x * 3}), (x,))

    compare(graph, other, (x,), repro_dir=tmp_path)

    script = (tmp_path / "repro.py").read_text()
    assert compile(script, "repro.py", "exec").co_filename == "repro.py"
