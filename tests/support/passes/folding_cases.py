"""Shared by the tests of folding: models with statistics as after training, and their comparison."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from npu_ir import Graph, TensorType, execute_ir, extract_ir
from npu_passes import Pass, PassManager, PassResult
from npu_passes.library.folding.constant_folding import ConstantFolding
from npu_passes.library.folding.conv_add_folding import ConvAddFolding
from npu_passes.library.folding.conv_bn_folding import NORMS, ConvBnFolding
from npu_passes.manager.checked_mode import relative_error

FOLDING = (ConvBnFolding, ConvAddFolding, ConstantFolding)
NORM = {1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}


def trained(model: nn.Module) -> nn.Module:
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            for name, low, high in (
                ("running_mean", -1, 1),
                ("running_var", 0.2, 3),
                ("weight", -2, 2),
                ("bias", -1, 1),
            ):
                tensor = getattr(module, name)
                if tensor is not None:
                    nn.init.uniform_(tensor, low, high)
    return model.eval()


def image(channels: int, dims: int = 2, size: int = 6) -> Tensor:
    return torch.randn(2, channels, *[size + axis for axis in range(dims)])


def hand_written_norm(op_type: str, attrs: dict[str, Any], outputs: int) -> Graph:
    """Return ``norm(conv(x))`` with one of the ops that norms are decomposed into."""
    graph, f32 = Graph("decomposed"), torch.float32
    x = graph.add_input("x", TensorType((2, 3, 6, 6), f32))
    weight = graph.add_parameter("0.weight", TensorType((4, 3, 3, 3), f32))
    names = ("1.weight", "1.bias", "1.running_mean", "1.running_var")
    norm = [graph.add_parameter(name, TensorType((4,), f32)) for name in names]
    made = TensorType((2, 4, 4, 4), f32)
    conv = graph.insert("aten.conv2d.default", [x, weight], types=made, operands=["input", "weight"])
    rest = [TensorType((0,), f32)] * (outputs - 1)
    node = graph.insert(
        op_type,
        [conv.outputs[0], *norm],
        {"momentum": 0.1, "eps": 1e-5, **attrs},
        types=[made, *rest],
        operands=["input", "weight", "bias", "running_mean", "running_var"],
    )
    graph.set_outputs(node.outputs[0])
    return graph


def run_passes(
    model: nn.Module, inputs: Sequence[Any], passes: Sequence[Pass | type[Pass]] = FOLDING, **options: Any
) -> PassResult:
    return PassManager(passes).run(extract_ir(model, tuple(inputs), **options))


def folded(model: nn.Module, *inputs: Tensor) -> Graph:
    return run_passes(model, inputs).graph


def assert_computes(
    graph: Graph, model: nn.Module, inputs: Sequence[Tensor], *, rtol: float | None = None
) -> None:
    """Assert that a graph computes what the model does: in its dtype, and in float64 of that and of eager."""
    with torch.no_grad():
        expected = model(*inputs)
        exact = copy.deepcopy(model).double()(*(item.double() for item in inputs))
    actual = execute_ir(graph, inputs, weights=model.state_dict())
    assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
    unit = torch.finfo(expected.dtype).eps
    bound = (ConvBnFolding.numerics.rtol / torch.finfo(torch.float32).eps) * unit if rtol is None else rtol
    assert relative_error(actual, expected) <= bound
    assert relative_error(actual.double(), exact) <= bound


def op_types(graph: Graph) -> list[str]:
    return [node.op_type for node in graph.body]


def norms(graph: Graph) -> int:
    return sum(node.op_type in NORMS for node in graph.nodes)


def refusals(result: PassResult) -> list[str]:
    return [item.reason for item in result.journal.refusals]
