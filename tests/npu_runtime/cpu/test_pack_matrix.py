"""Products by constant matrices become products by packed ones."""

import re

import pytest
import torch
from torch import Tensor, nn

from npu_ir import extract_ir
from npu_passes import PassManager
from npu_passes.core.registry import all_pipelines
from npu_passes.ops.packed import panel_width
from npu_runtime import IRExecutor
from tests.support.corpus.case import Holding
from tests.support.passes.cpu_cases import assert_computes, captured, ops, optimized, refusals

PASSES = "constant-folding,pack-matrix"
PACKED = "npu.packed_linear"


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no-bias"])
@pytest.mark.parametrize("out", [1, 16, 17, 33, 130])
def test_a_linear_layer_reads_panels_that_the_prologue_makes(bias: bool, out: int) -> None:
    model, x = nn.Linear(20, out, bias=bias), torch.randn(2, 5, 20)

    graph = optimized(model, x, passes=PASSES)

    assert ops(graph) == {PACKED: 1}
    panels = graph.body[0].inputs[1].tensor_type.static_shape
    width = {1: 16, 16: 16, 17: 32}.get(out, 64)
    assert panels == (-(-out // width), 20, width)
    assert [node.op_type for node in graph.prologue] == ["npu.pack_filters.default"]
    assert_computes(graph, model, x)


@pytest.mark.parametrize("function", [
    pytest.param(lambda self, x: x @ self.weight, id="matmul"),
    pytest.param(lambda self, x: torch.mm(x, self.weight), id="mm"),
    pytest.param(lambda self, x: torch.addmm(self.bias, x, self.weight), id="addmm"),
])  # fmt: skip
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_products_by_a_weight_are_packed(function: object, dtype: torch.dtype) -> None:
    weight, bias = nn.Parameter(torch.randn(20, 40)), nn.Parameter(torch.randn(40))
    model, x = Holding(function, weight=weight, bias=bias).to(dtype), torch.randn(5, 20, dtype=dtype)

    graph = optimized(model, x, passes=PASSES)

    assert ops(graph) == {PACKED: 1}
    assert_computes(graph, model, x)


@pytest.mark.parametrize(("dtype", "rows", "reason"), [
    (torch.float64, 2, "ATen's products of 2 rows of torch.float64 are faster"),
    (torch.bfloat16, 17, "ATen's products of 17 rows of torch.bfloat16 are faster"),
])  # fmt: skip
def test_products_that_aten_computes_faster_stay(dtype: torch.dtype, rows: int, reason: str) -> None:
    model, x = nn.Linear(20, 8).to(dtype), torch.randn(rows, 20, dtype=dtype)

    assert ops(optimized(model, x, passes=PASSES)) == {"linear": 1}
    assert reason in str(refusals(model, x, passes=PASSES))


def test_products_of_open_sizes_stay() -> None:
    model, x = nn.Linear(20, 8), torch.randn(4, 20)
    graph = extract_ir(model, (x,), dynamic_shapes=({0: torch.export.Dim("rows", max=9)},))

    assert ops(PassManager(PASSES).run(graph).graph) == {"linear": 1}


@pytest.mark.parametrize(("function", "reason"), [
    pytest.param(lambda m, x: x @ x.mT, "its weight %.* is computed at each call", id="no weight"),
    pytest.param(lambda m, x: torch.addmm(m.bias, x, m.weight, alpha=2), "it scales", id="scaled"),
    pytest.param(lambda m, x: torch.addmm(x[:, :1], x, m.weight), "its bias %.*, not a vector", id="bias"),
    pytest.param(lambda m, x: x[0] @ m.weight, "not a product of rows with a matrix", id="vector"),
])  # fmt: skip
def test_what_is_not_packed_has_the_reason(function: object, reason: str) -> None:
    weight, bias = nn.Parameter(torch.randn(20, 40)), nn.Parameter(torch.randn(40))
    model = Holding(function, weight=weight, bias=bias)

    (found,) = refusals(model, torch.randn(5, 20), passes="pack-matrix")

    assert re.search(reason, found.reason), found


def test_packed_weights_are_replaced_with_the_weights() -> None:
    model, other, x = nn.Linear(20, 40), nn.Linear(20, 40), torch.randn(5, 20)
    executor = IRExecutor(captured(model, x), model.state_dict(), passes="host")

    executor.load_state_dict(other.state_dict())

    torch.testing.assert_close(executor(x), other(x))
    assert all_pipelines()["host"].doc


def test_a_matrix_without_rows_is_packed() -> None:
    model, x = nn.Linear(0, 3), torch.randn(4, 0)

    graph = optimized(model, x, passes=PASSES)

    assert ops(graph) == {PACKED: 1}
    assert_computes(graph, model, x)


def test_the_width_of_panels_is_that_of_narrow_matrices_or_64() -> None:
    assert [panel_width(n) for n in (0, 1, 16, 17, 32, 33, 64, 4096)] == [16, 16, 16, 32, 32, 64, 64, 64]


def test_gradients_of_a_packed_layer_are_those_of_the_layer() -> None:
    x, weight = torch.randn(5, 20, requires_grad=True), torch.randn(40, 20, requires_grad=True)

    def gradients(result: Tensor) -> tuple[Tensor, ...]:
        return torch.autograd.grad(result.square().sum(), (x, weight))

    panels = torch.ops.npu.pack_matrix(weight.t(), 32)
    packed = torch.ops.npu.packed_linear(x, panels, None, 40)

    torch.testing.assert_close(gradients(packed), gradients(x @ weight.t()))
