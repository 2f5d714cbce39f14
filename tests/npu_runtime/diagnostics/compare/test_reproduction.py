"""Reproductions of a divergence, and their replay."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from npu_ir import VerificationError, extract_ir
from npu_runtime.cpu import onednn
from npu_runtime.cpu.pack_linear import PackLinear
from npu_runtime.diagnostics.compare import compare, replay
from npu_runtime.executor.executor import IRExecutor
from tests.npu_runtime.diagnostics.compare.cases import Layer, changed, changed_op, divergence
from tests.support.backends.broken_backends import Sound, outputs_as
from tests.support.corpus.case import Function
from tests.support.registration import registered


def test_the_script_runs_on_its_own_and_tells_which_side_is_wrong(tmp_path: Path) -> None:
    model = Layer(lambda self, x: torch.nn.functional.gelu(self.linear(x["a"])).sin())
    inputs = ({"a": torch.randn(2, 4)},)
    graph = extract_ir(model, inputs)
    with registered("aten.gelu.default", lambda given, attrs: [torch.nn.functional.gelu(given[0]) * 1.001]):
        found = compare(
            model,
            IRExecutor(graph, model.state_dict(), passes="default"),
            inputs,
            repro_dir=tmp_path / "repro",
        )

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


def reversed_order(given: Any, attrs: Any) -> Any:
    values, order = given[0].sort()
    return [values, order.flip(0)]


@pytest.mark.parametrize(("function", "op", "wrong", "type", "shown"), [
    pytest.param(lambda self, x: x.split(1)[-1] * 2, "aten.split.Tensor",
        lambda given, attrs: [item + 1 for item in given[0].split(1)], "f32[1, 4]",
        ["= aten.split.Tensor(", "\nb: 1 from float64"], id="the last of many outputs"),
    pytest.param(lambda self, x: x.sort()[1] * 2 + x.sort()[0], "aten.sort.default", reversed_order,
        "i64[100, 4]", ["\na: 0 from float64", "\nb: 3 from float64"], id="the output that differs"),
    pytest.param(lambda self, x: self.linear(x), "aten.linear.default",
        lambda given, attrs: [torch.nn.functional.linear(*given) + 1], "f32[100, 4]",
        ["param %linear.weight: f32[4, 4]", "\nb: 1 from float64"], id="weights that a node reads"),
])  # fmt: skip
def test_the_node_that_differs_is_shown(
    function: Any, op: str, wrong: Any, type: str, shown: list[str], tmp_path: Path
) -> None:
    model, x = Layer(function), torch.randn(100, 4)
    graph = extract_ir(model, (x,))
    with registered(op, wrong):
        found = compare(model, graph, (x,), repro_dir=tmp_path)

    assert (divergence(found).op, divergence(found).type) == (op, type)
    assert [text for text in shown if text not in replay(tmp_path)] == []


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


def test_a_node_that_only_a_backend_gets_wrong_is_run_by_it(tmp_path: Path) -> None:
    model = Layer(lambda self, x: self.linear(x).sin())
    x = torch.randn(2, 4)
    graph = extract_ir(model, (x,))
    backend = outputs_as(lambda item: item + 1)()

    found = compare(
        model,
        IRExecutor(graph, model.state_dict(), backend=backend, passes="default"),
        (x,),
        repro_dir=tmp_path,
    )

    assert found.b == "executor of 'Layer' on sound"
    unknown = replay(tmp_path).splitlines()
    assert any("run by the executor: there is no backend 'sound'" in line for line in unknown)
    *_, a, b, interpreter, executor = replay(tmp_path, backend=backend).splitlines()
    assert a.startswith("a: 0 from") or float(a.split()[1]) < 1e-6
    assert b.startswith("b: 1 from float64")
    assert float(interpreter.split(": ")[1].split()[0]) < 1e-6
    assert executor.startswith("this node, run by the executor on sound: 1 from float64")


@pytest.mark.skipif(onednn.unavailable_reason() is not None, reason="PyTorch's oneDNN ops are not there")
def test_weights_that_no_file_holds_are_packed_again(tmp_path: Path) -> None:
    model, x = nn.Sequential(nn.Linear(8, 8), nn.ReLU()), torch.randn(16, 8)
    graph = extract_ir(model, (x,))
    wrong = {**model.state_dict(), "0.bias": model[0].bias.detach() + 1}
    executor = IRExecutor(graph, wrong, passes=[PackLinear(min_products=0)])
    assert [node.op_type for node in executor.graph.prologue] == [onednn.PACK_LINEAR]

    found = compare(graph, executor, (x,), weights=model.state_dict(), repro_dir=tmp_path)

    assert divergence(found).counterpart_op == onednn.LINEAR
    text = replay(tmp_path)
    assert "float64 does not know the value, so side a stands for it: " in text
    assert "b: 1 from side a" in text
    assert "this node, run by the executor on aten: 1 from side a" in text


def test_a_node_that_an_executor_fails_in_is_shown_with_its_error(tmp_path: Path) -> None:
    class Fails(Sound):
        def run(self, program: Any, inputs: Any) -> Any:
            raise ValueError("not today")

    x = torch.randn(4)
    graph = extract_ir(Function(lambda x: x.sin()), (x,))
    compare(graph, IRExecutor(changed_op(graph, "sin", "cos")), (x,), repro_dir=tmp_path)

    text = replay(tmp_path, backend=Fails())

    assert "this node, run by the interpreter: " in text
    assert "this node, run by the executor: " in text
    assert "not today" in text


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.complex64, torch.int32], ids=str)
def test_every_dtype_can_be_shown(tmp_path: Path, dtype: torch.dtype) -> None:
    x = torch.tensor([1, 2, 3]).to(dtype)
    graph = extract_ir(Function(lambda x: x.neg() * 2 + x), (x,))

    compare(graph, changed(graph, "{other=2}", "{other=7}"), (x,), repro_dir=tmp_path)

    text = replay(tmp_path)
    assert "a: 15 from float64" in text
    assert "b: 0 from float64" in text


def test_sizes_that_the_graph_leaves_open_are_those_of_the_call(tmp_path: Path) -> None:
    class Open(nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            both = torch.cat([x, y]).sin()
            return both[both[:, 0] > 0] * x.shape[0]

    batch, other = torch.export.Dim("batch", min=2), torch.export.Dim("other", min=2)
    example = torch.randn(4, 2), torch.randn(3, 2)
    graph = extract_ir(Open(), example, dynamic_shapes={"x": {0: batch}, "y": {0: other}})
    call = torch.rand(6, 2), torch.rand(5, 2)
    for op_type, shape in (("aten.sin.default", "f32[11, 2]"), ("aten.mul.Tensor", "f32[11, 2]")):
        function = {"sin": lambda x: x.sin() + 1, "mul": lambda x, y: x * y + 1}[op_type.split(".")[1]]
        with registered(op_type, lambda given, attrs, function=function: [function(*given)]):
            found = compare(Open(), graph, call, repro_dir=tmp_path)

        assert divergence(found).op == op_type
        text = replay(tmp_path)
        assert f": {shape} = {op_type}(" in text
        assert "b: 1 from float64" in text


def test_inputs_that_a_run_does_not_show_are_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fused(x: Tensor) -> Tensor:
        return (x.sin() + 1).cos()

    x = torch.randn(4)
    model = Function(fused)
    graph = extract_ir(model, (x,))
    executor = IRExecutor(changed(graph, "{other=1}", "{other=2}"))
    whole = IRExecutor.run_flat

    def without_sin(self: Any, args: Any = (), kwargs: Any = None, *, observe: Any = None) -> Any:
        if observe is None:
            return whole(self, args, kwargs)
        return whole(self, args, kwargs, observe=lambda node, out: node.name != "sin" and observe(node, out))

    monkeypatch.setattr(IRExecutor, "run_flat", without_sin)

    found = compare(graph, executor, (x,), repro_dir=tmp_path)

    assert [row.name for row in found.values] == ["add", "cos"]
    assert "this node, run by the interpreter: " in replay(tmp_path)
