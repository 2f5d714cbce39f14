"""Linear layers get weights of 8 or 4 bits, with the error that is stated."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from npu_ir import Graph, extract_ir
from npu_passes import PassManager, optimize
from npu_passes.errors import PassError
from npu_passes.library.quantization.quantize_weights import QuantizeWeights
from npu_passes.ops.dynamic_quantized import round_activations
from npu_passes.ops.quantized import dequantize
from npu_passes.testing import check_pass
from npu_runtime import IRExecutor, compare
from tests.support.corpus.case import Holding
from tests.support.passes.cpu_cases import captured, ops, refusals
from tests.support.rows import each_row

LINEAR, DYNAMIC = "npu.quantized_linear", "npu.dynamic_quantized_linear"


class Tied(nn.Module):
    """An embedding whose weight is that of the last layer."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(40, 64)
        self.head = nn.Linear(64, 40, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        found: Tensor = self.head(self.embedding(tokens))
        return found


def quantized(model: nn.Module, *args: Tensor, **options: Any) -> Graph:
    return PassManager([QuantizeWeights(**options)]).run(captured(model, *args)).graph


@pytest.mark.smoke
@each_row("bias", [True, False])
@each_row("bits", [8, 4])
def test_a_linear_layer_reads_integers_that_the_prologue_makes(bits: int, bias: bool) -> None:
    model, x = nn.Linear(64, 48, bias=bias), torch.randn(2, 5, 64)
    graph = captured(model, x)

    assert check_pass(QuantizeWeights(bits=bits), graph) == 1

    found = quantized(model, x, bits=bits)
    assert ops(found) == {LINEAR: 1}
    assert [node.op_type for node in found.prologue] == ["npu.quantize_weight.default"]
    integers, scales = found.prologue[0].outputs
    assert integers.tensor_type.static_shape == ((48, 64) if bits == 8 else (48, 32))
    assert scales.tensor_type.static_shape == ((48, 1) if bits == 8 else (48, 2))


@each_row("block", [32, 24])  # of 24, the last one of a group has fewer elements
def test_activations_of_open_sizes_are_rounded(block: int) -> None:
    model, x = nn.Linear(64, 48), torch.randn(5, 64)
    rows = torch.export.Dim("rows", min=1, max=100)
    graph = extract_ir(model, (x,), dynamic_shapes={"input": {0: rows}})
    item = QuantizeWeights(activations="int8", block=block)

    found = PassManager([item]).run(graph).graph

    assert ops(found) == {DYNAMIC: 1}
    fixed = quantized(model, x, activations="int8", block=block)
    results = [IRExecutor(each, weights=model.state_dict(), passes=None)(x) for each in (found, fixed)]
    torch.testing.assert_close(results[0], results[1], rtol=1e-6, atol=1e-6)


@each_row("bits", [8, 4])
def test_activations_are_rounded_where_that_is_asked_for(bits: int) -> None:
    model, x = nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 32)).eval(), torch.randn(2, 5, 64)
    graph = captured(model, x)
    item = QuantizeWeights(bits=bits, group=16, activations="int8", block=8)

    assert check_pass(item, graph) == 1

    found = PassManager([item]).run(graph).graph
    assert ops(found) == {DYNAMIC: 2, "relu": 1}
    assert {node.attrs["block"] for node in found.nodes_of(f"{DYNAMIC}.default")} == {8}
    assert len(list(found.prologue)) == 2


def test_the_text_of_a_pipeline_asks_for_rounded_activations() -> None:
    model, x = nn.Linear(64, 48), torch.randn(2, 64)

    found = PassManager('quantize-weights{bits=4, activations="int8"}').run(captured(model, x)).graph

    assert ops(found) == {DYNAMIC: 1}


@each_row(
    "function",
    {
        "matmul": lambda self, x: x @ self.weight,
        "mm": lambda self, x: torch.mm(x, self.weight),
        "addmm": lambda self, x: torch.addmm(self.bias, x, self.weight),
    },
)
@each_row("dtype", [torch.float32, torch.bfloat16])
def test_products_by_a_weight_are_quantized(function: Any, dtype: torch.dtype) -> None:
    weight, bias = nn.Parameter(torch.randn(64, 40)), nn.Parameter(torch.randn(40))
    model, x = Holding(function, weight=weight, bias=bias).to(dtype), torch.randn(5, 64, dtype=dtype)

    assert check_pass(QuantizeWeights(), captured(model, x)) == 1
    assert ops(quantized(model, x)) == {LINEAR: 1}


@each_row("bits", [8, 4])
def test_a_result_differs_by_the_stated_bound_at_most(bits: int) -> None:
    model, x = nn.Linear(256, 96), torch.randn(7, 256)
    graph = quantized(model, x, bits=bits)
    scales = torch.ops.npu.quantize_weight(model.weight.detach(), bits, 256 if bits == 8 else 32)[1]
    half_scales = scales.repeat_interleave(256 // scales.shape[1], 1) / 2

    executor = IRExecutor(graph, model.state_dict(), passes=None, backend="aten")

    with torch.no_grad():
        expected, bound = model(x), F.linear(x.abs(), half_scales)
        error = executor(x) - expected

    assert (error.abs() <= bound * 1.001).all()
    assert error.norm() <= (0.012 if bits == 8 else 0.12) * expected.norm()
    assert compare(model, executor, (x,), atol=float(bound.max()), rtol=0).ok
    assert not compare(model, executor, (x,), atol=float(error.abs().max()) / 2, rtol=0).ok


@each_row("bits", [8, 4])
def test_a_result_of_rounded_activations_differs_by_the_stated_bound_at_most(bits: int) -> None:
    model, x = nn.Linear(256, 96), torch.randn(7, 256)
    group = 256 if bits == 8 else 32
    graph = quantized(model, x, bits=bits, activations="int8")
    integers, scales = torch.ops.npu.quantize_weight(model.weight.detach(), bits, group)
    half_scales = scales.repeat_interleave(group, 1) / 2
    half_blocks = round_activations(x, group, 32)[1].flatten(1).repeat_interleave(32, 1) / 2

    executor = IRExecutor(graph, model.state_dict(), passes=None, backend="aten")

    with torch.no_grad():
        of_weights, of_activations = (
            F.linear(x.abs(), half_scales),
            F.linear(half_blocks, dequantize(integers, scales, torch.float32).abs()),
        )
        expected, error = model(x), executor(x) - model(x)
        rounded = torch.ops.npu.quantized_linear(x, integers, scales, model.bias)
        usual = (executor(x) - rounded).norm() / rounded.norm()

    bound = of_weights + of_activations
    assert (error.abs() <= bound * 1.001).all()
    assert 0.003 < usual < 0.009, "about 0.5% of a usual result, as is stated"
    assert error.norm() <= (0.014 if bits == 8 else 0.12) * expected.norm()
    assert compare(model, executor, (x,), atol=float(bound.max()), rtol=0).ok
    assert not compare(model, executor, (x,), atol=float(error.abs().max()) / 2, rtol=0).ok


def test_an_embedding_keeps_the_weight_that_a_layer_quantizes() -> None:
    model, tokens = Tied().eval(), torch.tensor([[1, 2, 3]])
    graph = quantized(model, tokens)

    found = IRExecutor(graph, model.state_dict(), passes=None, backend="aten")(tokens)

    assert ops(graph) == {"embedding": 1, LINEAR: 1}
    torch.testing.assert_close(found, model(tokens), rtol=0.02, atol=0.2)


def test_a_weight_of_two_layers_is_quantized_once() -> None:
    weight = nn.Parameter(torch.randn(64, 64))
    model = Holding(lambda self, x: F.linear(F.linear(x, self.weight), self.weight), weight=weight)

    graph = quantized(model, torch.randn(2, 64))

    assert ops(graph) == {LINEAR: 2}
    assert len(list(graph.prologue)) == 1


@each_row(
    "case",
    {
        "computed": (lambda m, x: x @ x.mT, "%.* is computed at each call"),
        "input": (lambda m, x: x @ x[:64], "is computed at each call"),
        "scaled": (
            lambda m, x: torch.addmm(m.bias, x, m.weight, alpha=2),
            "it scales the product or the bias",
        ),
        "bias": (lambda m, x: torch.addmm(x[:, :1], x, m.weight), "its bias %.*, not a vector"),
        "vector": (lambda m, x: x[0] @ m.weight, "not a product of rows with a matrix"),
    },
)
def test_what_stays_has_the_reason(case: tuple[Any, str]) -> None:
    function, reason = case
    weight, bias = nn.Parameter(torch.randn(64, 40)), nn.Parameter(torch.randn(40))
    model = Holding(function, weight=weight, bias=bias)

    (found,) = refusals(model, torch.randn(64, 64), passes="quantize-weights{min_elements=0}")

    assert re.search(reason, found.reason), found


@each_row(
    "case",
    {
        "large": ("{min_elements=3072}", ""),
        "small": ("{min_elements=3073}", "its weight %.* has 3072 elements, less than 3073"),
        "named": ('{skip=["weigh*"]}', "its weight %weight is to stay"),
        "group": ("{group=48}", "a row of 64 elements is not made up of groups of 48"),
    },
)
def test_options_say_which_weights_stay(case: tuple[str, str]) -> None:
    options, reason = case

    found = refusals(nn.Linear(64, 48), torch.randn(2, 64), passes=f"quantize-weights{options}")

    assert [bool(re.search(reason, item.reason)) for item in found] == [True] * bool(reason)


def test_a_row_of_odd_length_stays() -> None:
    (found,) = refusals(nn.Linear(33, 48), torch.randn(2, 33), passes="quantize-weights{bits=4,group=33}")

    assert "an odd number" in found.reason


@each_row(
    "wrong",
    {
        "bits": ({"bits": 3}, "8 or 4 bits, not 3"),
        "group": ({"group": -1}, "a group has -1 elements"),
        "activations": ({"activations": "int4"}, "activations are 'int4', not float or int8"),
        "block": ({"block": 0}, "a block has 0 elements, not 1 to 1024"),
        "odd block": ({"bits": 4, "block": 5}, "a block has 5 elements, an odd number"),
    },
)
def test_options_are_checked(wrong: tuple[dict[str, Any], str]) -> None:
    options, match = wrong

    with pytest.raises(PassError, match=match):
        QuantizeWeights(**options)


def test_integers_are_weights_that_can_be_replaced_and_saved(tmp_path: Path) -> None:
    model, other, x = nn.Linear(64, 48), nn.Linear(64, 48), torch.randn(5, 64)
    executor = IRExecutor(quantized(model, x), model.state_dict(), passes="host", backend="aten")
    expected = IRExecutor(quantized(other, x), other.state_dict(), passes=None, backend="aten")(x)

    executor.load_state_dict(other.state_dict())
    executor.save(tmp_path / "saved.npux")
    loaded = IRExecutor.load(tmp_path / "saved.npux")

    assert torch.equal(executor(x), expected)
    assert torch.equal(loaded(x), expected)


def test_it_is_part_of_a_pipeline_with_the_passes_that_pack() -> None:
    model, x = nn.Sequential(nn.Linear(64, 48), nn.GELU(), nn.Linear(48, 2)).eval(), torch.randn(5, 64)

    graph = PassManager("constant-folding,quantize-weights,pack-matrix").run(extract_ir(model, (x,))).graph

    assert ops(graph) == {LINEAR: 1, "gelu": 1, "npu.packed_linear": 1}
    assert ops(optimize(graph)) == ops(graph)
