"""A linear layer and the activation behind it become one op that computes the same."""

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from npu_ir import Graph, execute_ir, extract_ir
from npu_passes import PassError, PassManager
from npu_passes.library.fusion.fuse_linear_activation import FuseLinearActivation
from npu_passes.ops.fused import ACTIVATIONS, LINEAR_ACTIVATION
from npu_passes.testing import check_pass
from tests.support.corpus.case import Function, Holding
from tests.support.passes.pattern_cases import op_types, reasons
from tests.support.rows import each_row
from tests.support.tiers import some

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]


def fused(graph: Graph) -> Any:
    return PassManager([FuseLinearActivation]).run(graph)


MODULES = [
    (nn.GELU(), "gelu"),
    (nn.GELU(approximate="tanh"), "gelu_tanh"),
    (nn.Hardsigmoid(), "hardsigmoid"),
    (nn.Hardswish(), "hardswish"),
    (nn.Mish(), "mish"),
    (nn.ReLU(), "relu"),
    (nn.ReLU(inplace=True), "relu"),
    (nn.ReLU6(), "relu6"),
    (Function(nn.functional.relu6), "relu6"),
    (nn.Sigmoid(), "sigmoid"),
    (nn.SiLU(), "silu"),
    (nn.Tanh(), "tanh"),
]


def addmm(function: Callable[[Tensor], Any], bias: Tensor | None = None, **factors: float) -> nn.Module:
    """Return GPT-2's linear layer, and a function behind it."""
    return Holding(
        lambda self, x: function(torch.addmm(self.bias, x, self.weight, **factors)),
        weight=nn.Parameter(torch.randn(8, 6)),
        bias=nn.Parameter(torch.randn(6) if bias is None else bias),
    )


def assert_fused(model: nn.Module, x: Tensor, activation: str, count: int) -> None:
    graph = fused(extract_ir(model, (x,))).graph

    (node,) = graph.nodes_of(LINEAR_ACTIVATION)
    assert node.attrs["activation"] == activation
    assert len(graph) == count
    assert torch.equal(execute_ir(graph, (x,), weights=model.state_dict()), model(x))


def test_linear_and_activation_become_one_op(subtests: pytest.Subtests) -> None:
    for dtype, (activation, name) in some(list(itertools.product(DTYPES, MODULES)), 19):
        for bias in (True, False) if dtype is torch.float32 else (True,):
            with subtests.test(dtype=dtype, activation=activation, bias=bias):
                model = nn.Sequential(nn.Linear(8, 6, bias=bias), activation).to(dtype)

                assert_fused(model, torch.randn(2, 5, 8, dtype=dtype), name, 1)


def test_addmm_and_activation_become_one_op_on_the_turned_weight(subtests: pytest.Subtests) -> None:
    views = {
        "no view": (lambda y: y, 2),
        "view": (lambda y: y.view(2, 5, 6), 3),
        "reshape": (lambda y: y.reshape(2, 5, 6), 3),
    }
    for (activation, name), (case, (view, count)) in some(
        list(itertools.product(MODULES, views.items())), 13
    ):
        with subtests.test(activation=activation, case=case):
            model = addmm(lambda y: activation(view(y)))
            model.activation = activation

            assert_fused(model, torch.randn(10, 8), name, count)


GELU = math.sqrt(2.0 / math.pi)
WRITTEN = {
    "silu": (lambda x: x * torch.sigmoid(x), "silu.default"),
    "silu, turned": (lambda x: torch.sigmoid(x) * x, "silu.default"),
    "gelu": (
        lambda x: 0.5 * x * (1.0 + torch.tanh(GELU * (x + 0.044715 * torch.pow(x, 3.0)))),
        "gelu.default",
    ),
}


def test_activations_that_are_written_out_become_one_op(subtests: pytest.Subtests) -> None:
    for dtype, (case, (written, op_type)) in itertools.product(DTYPES, WRITTEN.items()):
        with subtests.test(dtype=dtype, case=case):
            graph = extract_ir(Function(written), (torch.randn(4, 64, dtype=dtype) * 3,))

            assert check_pass(FuseLinearActivation, graph) == 1
            assert op_types(fused(graph).graph) == [op_type]


def test_what_is_no_linear_layer_and_activation_stays(subtests: pytest.Subtests) -> None:
    linear = nn.Linear(8, 6)
    rows = {
        "no activation by element": (nn.Sequential(linear, nn.Softmax(-1)), []),
        "a hardtanh that is no relu6": (nn.Sequential(linear, nn.Hardtanh(-1, 6)), []),
        "a flatten between": (nn.Sequential(linear, nn.Flatten(), nn.ReLU()), []),
        "a bias that is no vector": (addmm(torch.relu, torch.randn(10, 6)), []),
        "factors": (addmm(torch.relu, alpha=2), []),
        "integers": (Function(lambda x: (lambda y: y * torch.sigmoid(y))(x.long())), []),
        "read elsewhere": (
            nn.Sequential(linear, Function(lambda y: (torch.relu(y), y))),
            ["%linear is read elsewhere, too"],
        ),
    }
    for case, (model, refused) in rows.items():
        with subtests.test(case):
            graph = extract_ir(model, (torch.randn(10, 8),))

            result = fused(graph)

            assert str(result.graph) == str(graph)
            if refused:
                assert reasons(result) == refused


def test_an_unknown_activation_is_refused() -> None:
    with pytest.raises(PassError, match="npu::linear_activation has no activation 'cube'"):
        torch.ops.npu.linear_activation(torch.randn(2, 3), torch.randn(4, 3), None, "cube")


@each_row("name", list(ACTIVATIONS))
def test_a_fused_op_is_differentiated(name: Any) -> None:
    x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(2, 4, dtype=torch.float64, requires_grad=True)

    assert torch.autograd.gradcheck(
        lambda a, b: torch.ops.npu.linear_activation(a, b, None, name), (x, weight)
    )


def test_floating_point_operations_are_counted() -> None:
    graph = extract_ir(nn.Sequential(nn.Linear(8, 6), nn.ReLU()), (torch.randn(3, 8),))

    result = fused(graph)

    assert result.after.flops == result.before.flops == 2 * 3 * 8 * 6
