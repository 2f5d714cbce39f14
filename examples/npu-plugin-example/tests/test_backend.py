"""The backend keeps what every backend promises, and packs and refuses what it says it does."""

from __future__ import annotations

import struct

import pytest
import torch
from npu_ir import Graph, extract_ir, parse_ir
from npu_runtime import IRExecutor, explain
from npu_runtime.testing import BackendContract

from npu_plugin_example.backend import SCALE, ExampleBackend


class TestExampleBackend(BackendContract):
    """All that backends promise."""

    backend = ExampleBackend()


def one(line: str, inputs: str = "%x: f32[2, 3]") -> Graph:
    """Return the graph of one node."""
    lines = "\n".join(f"  input {text}" for text in inputs.split("; "))
    return parse_ir(f"graph one {{\n{lines}\n  {line}\n  return %y\n}}")


def test_an_executor_runs_a_model_on_it_and_the_rest_on_aten() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Sigmoid(), torch.nn.Linear(4, 2))
    x = torch.randn(5, 3)
    graph = extract_ir(model, (x,))

    executor = IRExecutor(graph, model.state_dict(), backend=ExampleBackend())

    torch.testing.assert_close(executor(x), model(x))
    nodes = explain(executor).nodes
    assert [node.backend for node in nodes] == ["npu-plugin-example", "aten", "npu-plugin-example"]
    assert nodes[0].kernel == "gemm_f32, bias_f32"
    assert nodes[1].reasons == {"npu-plugin-example": "no kernel for aten.sigmoid.default"}


def test_a_linear_layer_is_a_product_and_a_bias() -> None:
    text = "%y: f32[2, 4] = aten.linear.default(input=%x, weight=%w, bias=%b)"
    graph = one(text, "%x: f32[2, 3]; %w: f32[4, 3]; %b: f32[4]")

    gemm, bias = ExampleBackend().lower(graph)

    assert [gemm.kernel, bias.kernel] == ["gemm_f32", "bias_f32"]
    assert bias.inputs == (*gemm.outputs, graph.inputs[2])
    assert bias.outputs == graph.outputs


def test_a_number_is_packed() -> None:
    (op,) = ExampleBackend().lower(one("%y: f32[2, 3] = aten.add.Tensor(self=%x) {other=2.5}"))

    assert (op.kernel, op.schema_id) == ("add_number_f32", SCALE)
    assert op.attrs == struct.pack("<d", 2.5)


@pytest.mark.parametrize(
    ("line", "inputs", "reason"),
    [
        pytest.param(
            "%y: f32[2, 3] = aten.neg.default(self=%x)",
            "%x: f32[2, 3]",
            "no kernel for aten.neg.default",
            id="op",
        ),
        pytest.param(
            "%y: f16[3] = aten.relu.default(self=%x)",
            "%x: f16[3]",
            "kernels take float32, not f16[3]",
            id="dtype",
        ),
        pytest.param(
            "%y: f32[2, 3]@[1, 2] = aten.relu.default(self=%x)",
            "%x: f32[2, 3]@[1, 2]",
            "kernels take contiguous tensors of fixed sizes, not f32[2, 3]@[1, 2]",
            id="strides",
        ),
        pytest.param(
            "%y: f32[2, 3] = aten.add.Tensor(self=%x, other=%z)",
            "%x: f32[2, 3]; %z: f32[3]",
            "kernels do not broadcast",
            id="broadcast",
        ),
    ],
)
def test_what_it_does_not_run_it_refuses_with_the_reason(
    line: str, inputs: str, reason: str
) -> None:
    (node,) = one(line, inputs).nodes

    assert ExampleBackend().supports(node) == reason


def test_another_number_of_inputs_is_refused() -> None:
    graph, backend = one("%y: f32[2, 3] = aten.relu.default(self=%x)"), ExampleBackend()
    program = backend.prepare(graph, backend.lower(graph), backend.devices()[0])

    with pytest.raises(Exception, match="0 inputs for a program that takes 1"):
        backend.run(program, [])

    assert torch.equal(backend.run(program, [-torch.ones(2, 3)])[0], torch.zeros(2, 3))
