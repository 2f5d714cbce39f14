"""Graphs with quantized weights on the backend ``host``."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from npu_ir import Graph, extract_ir
from npu_passes import PassManager
from npu_passes.library.quantization.quantize_weights import QuantizeWeights
from npu_runtime import IRExecutor, compare
from tests.support.rows import each_row

ROWS, FLOATS = (1, 3, 40), (torch.float32, torch.bfloat16, torch.float16)


def layers(dtype: torch.dtype = torch.float32) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(96, 130), nn.SiLU(), nn.Linear(130, 64, bias=False)).eval().to(dtype)


LINEARS = {
    "float": "npu.quantized_linear.default",
    "int8": "npu.dynamic_quantized_linear.default",
}


def quantized(model: nn.Module, x: Tensor, bits: int, activations: str = "float") -> Graph:
    item = QuantizeWeights(bits=bits, group=0 if bits == 8 else 2, activations=activations)
    return PassManager([item]).run(extract_ir(model, (x,))).graph


@pytest.mark.smoke
@each_row("rows", ROWS)
@each_row("dtype", FLOATS)
@each_row("activations", list(LINEARS))
@each_row("bits", [8, 4])
def test_host_computes_what_aten_does(bits: int, activations: str, dtype: torch.dtype, rows: int) -> None:
    model, x = layers(dtype), torch.randn(rows, 96).to(dtype)
    graph = quantized(model, x, bits, activations)

    executor = IRExecutor(graph, model.state_dict(), backend="host")
    expected = IRExecutor(graph, model.state_dict(), backend="aten", passes=None)

    found = [item.partition for item in executor.lowered.partitions]
    assert [item.backend.name for item in found] == ["host"]
    assert sum(node.op_type == LINEARS[activations] for node in found[0].nodes) == 2
    comparison = compare(expected, executor, (x,))
    assert comparison.ok, comparison


def test_numbers_of_64_bits_are_left_to_aten() -> None:
    model, x = layers(torch.float64), torch.randn(3, 96).double()

    executor = IRExecutor(quantized(model, x, 8), model.state_dict(), backend="host")

    assert all(
        node.op_type != "npu.quantized_linear.default"
        for item in executor.lowered.partitions
        if item.partition.backend.name == "host"
        for node in item.partition.nodes
    )
    torch.testing.assert_close(executor(x), model(x).detach(), rtol=0.05, atol=0.05)


def test_integers_are_replaced_and_saved_with_the_kernels(tmp_path: Path) -> None:
    model, x = layers(), torch.randn(3, 96)
    executor = IRExecutor(quantized(model, x, 8), model.state_dict(), backend="host")
    other = {name: 2 * item for name, item in model.state_dict().items()}

    executor.load_state_dict(other)
    executor.save(tmp_path / "saved.npux")

    found = IRExecutor.load(tmp_path / "saved.npux")(x)
    assert torch.equal(found, executor(x))
    assert torch.equal(found, IRExecutor(quantized(model, x, 8), other, backend="host")(x))


@each_row("rows", [1, 4, 300])
@each_row("activations", list(LINEARS))
@each_row("bits", [8, 4])
def test_threads_do_not_change_a_bit(bits: int, activations: str, rows: int) -> None:
    model, x = nn.Linear(384, 1000), torch.randn(rows, 384)
    graph = quantized(model, x, bits, activations)

    found = [
        IRExecutor(graph, model.state_dict(), backend="host", threads=count)(x).clone() for count in (1, 2, 3)
    ]

    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])
