"""A linear layer and the activation behind it become one op that computes the same."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from npu_ir import Graph, execute_ir, extract_ir, save_ir
from npu_passes import PassError, PassManager
from npu_passes.library.decompose import Decompose
from npu_passes.library.fusion.fuse_linear_activation import FuseLinearActivation
from npu_passes.ops.fused import ACTIVATIONS, LINEAR_ACTIVATION
from npu_passes.testing import check_pass
from tests.support.corpus.case import Function
from tests.support.passes.pattern_cases import op_types, reasons

MODULES = [
    pytest.param(nn.GELU(), "gelu", id="gelu"),
    pytest.param(nn.GELU(approximate="tanh"), "gelu_tanh", id="gelu-tanh"),
    pytest.param(nn.Hardsigmoid(), "hardsigmoid", id="hardsigmoid"),
    pytest.param(nn.Hardswish(), "hardswish", id="hardswish"),
    pytest.param(nn.Mish(), "mish", id="mish"),
    pytest.param(nn.ReLU(), "relu", id="relu"),
    pytest.param(nn.ReLU(inplace=True), "relu", id="relu-in-place"),
    pytest.param(nn.ReLU6(), "relu6", id="relu6"),
    pytest.param(Function(nn.functional.relu6), "relu6", id="relu6-function"),
    pytest.param(nn.Sigmoid(), "sigmoid", id="sigmoid"),
    pytest.param(nn.SiLU(), "silu", id="silu"),
    pytest.param(nn.Tanh(), "tanh", id="tanh"),
]


class Conv1D(nn.Module):
    """GPT-2's linear layer, and an activation."""

    def __init__(self, activation: Any, *, views: bool = True, rank: int = 1) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 6))
        self.bias = nn.Parameter(torch.randn(*[6] * rank) if rank < 2 else torch.randn(10, 6))
        self.activation, self.views = activation, views

    def forward(self, x: Tensor) -> Tensor:
        product = torch.addmm(self.bias, x.view(-1, 8), self.weight)
        return self.activation(product.view(*x.shape[:-1], 6) if self.views else product)  # type: ignore[no-any-return]


def fused(graph: Graph) -> Any:
    return PassManager([FuseLinearActivation]).run(graph)


def assert_fused(model: nn.Module, x: Tensor, activation: str, count: int) -> None:
    graph = fused(extract_ir(model, (x,))).graph

    (node,) = graph.nodes_of(LINEAR_ACTIVATION)
    assert node.attrs["activation"] == activation
    assert len(graph) == count
    assert torch.equal(execute_ir(graph, (x,), weights=model.state_dict()), model(x))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no-bias"])
@pytest.mark.parametrize(("activation", "name"), MODULES)
def test_linear_and_activation_become_one_op(
    activation: nn.Module, name: str, bias: bool, dtype: torch.dtype
) -> None:
    model = nn.Sequential(nn.Linear(8, 6, bias=bias), activation).to(dtype)

    assert_fused(model, torch.randn(2, 5, 8, dtype=dtype), name, 1)


@pytest.mark.parametrize(("activation", "name"), MODULES)
def test_addmm_and_activation_become_one_op_on_the_turned_weight(activation: nn.Module, name: str) -> None:
    assert_fused(Conv1D(activation, views=False), torch.randn(10, 8), name, 3)


def test_a_view_may_stand_between(subtests: pytest.Subtests) -> None:
    for view in [Tensor.view, Tensor.reshape]:
        with subtests.test(view=view):

            class Viewed(Conv1D):
                def forward(self, x: Tensor) -> Tensor:
                    return torch.relu(view(torch.addmm(self.bias, x, self.weight), (2, 5, 6)))

            assert_fused(Viewed(torch.relu), torch.randn(10, 8), "relu", 3)


def test_activations_that_are_written_out_become_one_op(subtests: pytest.Subtests) -> None:
    written_rows = [
        (lambda x: x * torch.sigmoid(x), "silu.default"),
        (lambda x: torch.sigmoid(x) * x, "silu.default"),
        (
            lambda x: (
                0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))
            ),
            "gelu.default",
        ),
    ]
    for dtype in [torch.float32, torch.float64, torch.bfloat16, torch.float16]:
        for written, op_type in written_rows:
            with subtests.test(dtype=dtype, written=written, op_type=op_type):

                class Written(nn.Module):
                    def forward(self, x: Tensor) -> Tensor:
                        return written(x)  # type: ignore[no-any-return]

                graph = extract_ir(Written(), (torch.randn(4, 64, dtype=dtype) * 3,))

                assert check_pass(FuseLinearActivation, graph) == 1
                assert op_types(fused(graph).graph) == [op_type]


def test_a_written_activation_behind_a_linear_layer_is_fused_with_it() -> None:
    class Swish(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(8, 6)

        def forward(self, x: Tensor) -> Tensor:
            y = self.linear(x)
            return y * torch.sigmoid(y)

    graph = extract_ir(Swish(), (torch.randn(3, 8),))

    assert op_types(fused(graph).graph) == ["npu.linear_activation.default"]


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 6)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = self.linear(x)
        return torch.relu(y), y


def test_what_a_linear_layer_returns_is_read_by_the_activation_alone() -> None:
    graph = extract_ir(Twice(), (torch.randn(3, 8),))

    result = fused(graph)

    assert str(result.graph) == str(graph)
    assert reasons(result) == ["%linear is read elsewhere, too"]


def test_what_is_no_linear_layer_and_activation_stays(subtests: pytest.Subtests) -> None:
    rows = {
        "no activation by element": nn.Sequential(nn.Linear(8, 6), nn.Softmax(-1)),
        "a hardtanh that is no relu6": nn.Sequential(nn.Linear(8, 6), nn.Hardtanh(-1, 6)),
        "a flatten between": nn.Sequential(nn.Linear(8, 6), nn.Flatten(), nn.ReLU()),
        "a bias that is no vector": Conv1D(torch.relu, rank=2, views=False),
    }
    for case, model in rows.items():
        with subtests.test(case):
            graph = extract_ir(model, (torch.randn(10, 8),))

            assert str(fused(graph).graph) == str(graph)


def test_addmm_with_factors_stays() -> None:
    class Scaled(Conv1D):
        def forward(self, x: Tensor) -> Tensor:
            return torch.relu(torch.addmm(self.bias, x, self.weight, alpha=2))

    graph = extract_ir(Scaled(torch.relu), (torch.randn(10, 8),))

    assert str(fused(graph).graph) == str(graph)


def test_integers_times_their_sigmoid_stay() -> None:
    class Integers(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * torch.sigmoid(x)

    graph = extract_ir(Integers(), (torch.arange(6),))

    assert str(fused(graph).graph) == str(graph)


def test_the_pass_keeps_its_promises() -> None:
    model = nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 6), nn.GELU(), Conv1D(nn.SiLU()))
    model[4].weight = nn.Parameter(torch.randn(8, 6))
    model.insert(4, nn.Linear(6, 8))

    assert check_pass(FuseLinearActivation, extract_ir(model.eval(), (torch.randn(4, 8),))) == 1


def test_an_unknown_activation_is_refused() -> None:
    with pytest.raises(PassError, match="npu::linear_activation has no activation 'cube'"):
        torch.ops.npu.linear_activation(torch.randn(2, 3), torch.randn(4, 3), None, "cube")


def test_a_fused_op_is_differentiated(subtests: pytest.Subtests) -> None:
    for name in ACTIVATIONS:
        with subtests.test(name=name):
            x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
            weight = torch.randn(2, 4, dtype=torch.float64, requires_grad=True)

            assert torch.autograd.gradcheck(
                lambda a, b: torch.ops.npu.linear_activation(a, b, None, name), (x, weight)
            )


def test_decompose_takes_it_apart_again() -> None:
    model = nn.Sequential(nn.Linear(8, 6), nn.ReLU())
    x = torch.randn(3, 8)

    graph = PassManager([FuseLinearActivation, Decompose], max_rounds=1).run(extract_ir(model, (x,))).graph

    assert op_types(graph) == ["permute.default", "addmm.default", "relu.default"]
    assert torch.equal(execute_ir(graph, (x,), weights=model.state_dict()), model(x))


def test_floating_point_operations_are_counted() -> None:
    graph = extract_ir(nn.Sequential(nn.Linear(8, 6), nn.ReLU()), (torch.randn(3, 8),))

    result = fused(graph)

    assert result.after.flops == result.before.flops == 2 * 3 * 8 * 6


@pytest.mark.exhaustive
def test_a_fused_graph_runs_in_a_new_process(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(8, 6), nn.ReLU())
    x = torch.randn(3, 8)
    save_ir(fused(extract_ir(model, (x,))).graph, tmp_path / "fused.json")
    torch.save((x, model.state_dict(), model(x)), tmp_path / "data.pt")
    program = """
import sys, torch
from npu_ir import execute_ir, load_ir
x, weights, wanted = torch.load("data.pt")
graph = load_ir("fused.json")
assert "npu_passes" not in sys.modules
assert [node.op_type for node in graph.nodes] == ["npu.linear_activation.default"]
assert torch.equal(execute_ir(graph, (x,), weights=weights), wanted)
"""

    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
