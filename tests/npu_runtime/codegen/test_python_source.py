"""The program of an executor, as Python source."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn, ones, zeros

from npu_ir import Graph, Provenance, TensorType, extract_ir, save_ir
from npu_runtime import IRExecutor

F32 = torch.float32
PROGRAM = """if True:
    import sys
    from npu_ir import load_ir
    from npu_runtime import IRExecutor
    print(IRExecutor(load_ir(sys.argv[1]), sys.argv[2]).source, end="")
"""


def graph_of(*names: str, graph_name: str = "g", place: str = "") -> Graph:
    """Return a graph of inputs of these names, minus one another."""
    graph = Graph(graph_name)
    first, *others = [graph.add_input(name, TensorType((2,), F32)) for name in names]
    for value in others:
        node = graph.insert(
            "aten.sub.Tensor", [first, value], types=first.type, operands=("self", "other"), name="result"
        )
        graph.set_provenance(node, Provenance(source=place))
        first = node.outputs[0]
    graph.set_outputs(first)
    return graph


def test_the_program_reads_as_documented() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(3, 4)

        def forward(self, x: Tensor) -> Any:
            hidden = self.linear(x).relu()
            return hidden.transpose(0, 1).reshape(2, -1), hidden.to(torch.float64)

    model = Model()
    executor = IRExecutor(extract_ir(model, (ones(2, 3),), name="model"), model.state_dict(), passes=None)

    lines = [line.strip() for line in executor.source.splitlines() if not line.strip().startswith("#")]

    assert lines == [
        *("", "", "def bind(ops, weights, literals):"),
        *("(", "op_linear,", "op_relu_,", "op_transpose,", "op_reshape,", "op_to,", ") = ops"),
        *("(", "linear_weight,", "linear_bias,", ") = weights"),
        *("(", "float64,", ") = literals"),
        "",
        "def run(symbols, x):",
        "linear = op_linear(x, linear_weight, linear_bias)",
        "relu = op_relu_(linear)",
        "del linear",
        "transpose = op_transpose(relu, 0, 1)",
        "reshape = op_reshape(transpose, [2, -1])",
        "del transpose",
        "to = op_to(relu, float64)",
        "del relu",
        "return (reshape, to)",
        *("", "return run"),
    ]
    assert re.search(r"# linear, \S*test_python_source\.py:\d+\n", executor.source)


@pytest.mark.exhaustive
def test_the_program_is_the_same_in_every_process(tmp_path: Path) -> None:
    layers = nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(27, 2), nn.Dropout()
    model = nn.Sequential(*layers).train()
    graph = extract_ir(model, (ones(2, 2, 5, 5),))
    save_ir(graph, tmp_path / "graph.json")
    torch.save(model.state_dict(), tmp_path / "weights.pt")

    other = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "graph.json"), str(tmp_path / "weights.pt")],
        env={**os.environ, "PYTHONHASHSEED": "1"},
        capture_output=True,
        text=True,
        check=True,
    )

    source = IRExecutor(graph, model.state_dict()).source
    assert other.stdout == source
    ast.parse(source, feature_version=(3, 10))


@pytest.mark.smoke
def test_the_source_is_the_program() -> None:
    graph = graph_of("x", "y")
    executor = IRExecutor(graph, passes=None)
    space: dict[str, Any] = {}

    exec(executor.source, space)
    run = space["bind"]([torch.sub], (), ())

    assert torch.equal(run(None, ones(2) * 3, ones(2))[0], ones(2) * 2)


def test_a_value_may_have_any_name() -> None:
    names = ["x²", "ﬁ", "é", "ª", "x.1", "x_1", "class", "None", "ops", "symbols", "run", "_", "1", "x\ny"]
    for name in (*names, "x'", "op_sub", "\U0001d535"):
        executor = IRExecutor(graph_of(name, "fi", "x"), passes=None)
        assert executor(ones(2) * 5, ones(2), ones(2)).tolist() == [3.0, 3.0], name


ODD_TEXTS = [
    *('a"""\nraise SystemExit\n"""', "a'''\nraise SystemExit\n", "a\nraise SystemExit"),
    *("a\rraise SystemExit", "a\x0craise SystemExit", "a\u2028raise SystemExit"),
    *("a\x00b", "a\udc80b", "a\\", "../../a/b", "é" * 300, ""),
]


def test_no_text_of_a_graph_becomes_code() -> None:
    for text in ODD_TEXTS:
        executor = IRExecutor(graph_of("x", "y", graph_name=text, place=text), passes=None)

        assert executor(ones(2), zeros(2)).tolist() == [1.0, 1.0]
        (definition,) = ast.parse(executor.source).body
        assert isinstance(definition, ast.FunctionDef)
