"""A sum and the norm behind it become one op that returns both."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from npu_ir import execute_ir, extract_ir
from npu_passes import PassManager, PassResult
from npu_passes.library.fusion.fuse_add_norm import FuseAddNorm
from npu_passes.ops.fused import ADD_LAYER_NORM, ADD_RMS_NORM
from tests.support.corpus.case import Holding
from tests.support.passes.pattern_cases import op_types, reasons
from tests.support.rows import each_row

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
SIZE = 16


def fused(model: nn.Module, *args: Tensor) -> PassResult:
    return PassManager([FuseAddNorm]).run(extract_ir(model.eval(), args))


def pair(*shape: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    shape = shape or (2, 5, SIZE)
    return torch.randn(*shape).to(dtype), torch.randn(*shape).to(dtype)


def add_norm(norm: nn.Module, function: Any = None) -> nn.Module:
    return Holding(function or (lambda self, x, y: self.norm(x + y)), norm=norm)


def test_a_sum_and_a_norm_become_one_op(subtests: pytest.Subtests) -> None:
    norm_rows = {
        "layer-norm": (lambda: nn.LayerNorm(SIZE), ADD_LAYER_NORM),
        "layer-norm-no-bias": (lambda: nn.LayerNorm(SIZE, bias=False), ADD_LAYER_NORM),
        "layer-norm-plain": (lambda: nn.LayerNorm(SIZE, elementwise_affine=False), ADD_LAYER_NORM),
        "layer-norm-of-two-axes": (lambda: nn.LayerNorm((5, SIZE), eps=1e-3), ADD_LAYER_NORM),
        "rms-norm": (lambda: nn.RMSNorm(SIZE), ADD_RMS_NORM),
        "rms-norm-plain": (lambda: nn.RMSNorm(SIZE, eps=1e-3, elementwise_affine=False), ADD_RMS_NORM),
    }
    for dtype in DTYPES:
        for case, (norm, op_type) in norm_rows.items():
            with subtests.test(dtype=dtype, case=case):
                model = add_norm(norm()).to(dtype)
                args = pair(dtype=dtype)

                graph = fused(model, *args).graph

                assert [node.op_type for node in graph.nodes] == [op_type]
                assert torch.equal(execute_ir(graph, args, weights=model.state_dict()), model(*args))


@each_row("function", {
    "a result": (lambda self, x, y: (lambda s: (self.norm(s), s))(x + y)),
    "behind the norm": (lambda self, x, y: (lambda s: s + self.norm(s).relu())(x + y)),
    "in front of the norm": (lambda self, x, y: (lambda s: (s.exp(), self.norm(s)))(x + y)),
})  # fmt: skip
def test_the_sum_may_be_read_elsewhere(function: Any) -> None:
    model = add_norm(nn.LayerNorm(SIZE), function)
    args = pair()

    graph = fused(model, *args).graph

    assert "npu.add_layer_norm.default" in op_types(graph)
    assert "layer_norm.default" not in op_types(graph)
    actual, expected = execute_ir(graph, args, weights=model.state_dict()), model(*args)
    for got, wanted in zip(actual, expected, strict=True):
        assert torch.equal(got, wanted)


def test_of_two_norms_of_one_sum_the_first_is_fused() -> None:
    model = add_norm(
        nn.LayerNorm(SIZE), lambda self, x, y: (lambda s: self.norm(s) + self.norm(s * 2))(x + y)
    )

    graph = fused(model, *pair()).graph

    assert op_types(graph) == ["npu.add_layer_norm.default", "mul.Tensor", "layer_norm.default", "add.Tensor"]


def late_weight(self: Any, x: Tensor, y: Tensor) -> Tensor:
    s = x + y
    return nn.functional.layer_norm(s, [SIZE], weight=y[0, 0].exp()) + s


def test_what_cannot_be_fused_is_refused_with_a_reason(subtests: pytest.Subtests) -> None:
    layer, x = nn.LayerNorm(SIZE), torch.randn(2, SIZE)
    scaled = "the sum is not one of two tensors, or scales one"
    rows = [
        (add_norm(layer), (torch.randn(2, 5, SIZE), torch.randn(1, 5, SIZE)),
            "broadcasts or promotes %args_1"),
        (add_norm(layer), (x, x.half()),
            "the sum broadcasts or promotes %args_1, f16[2, 16], to f32[2, 16]"),
        (add_norm(layer, lambda self, x, y: self.norm(torch.add(x, y, alpha=2))), pair(), scaled),
        (add_norm(layer, lambda self, x, y: self.norm(x + 1) * y), pair(), scaled),
        (Holding(late_weight), pair(), "its weight is computed at each call, maybe after the sum"),
    ]  # fmt: skip
    for model, args, reason in rows:
        with subtests.test(reason):
            result = fused(model, *args)

            assert not {ADD_LAYER_NORM, ADD_RMS_NORM} & set(op_types(result.graph))
            assert any(reason in found for found in reasons(result))


def test_a_norm_of_what_is_no_sum_is_not_spoken_of() -> None:
    result = fused(add_norm(nn.LayerNorm(SIZE), lambda self, x, y: self.norm(x) * y), *pair())

    assert not result.journal.rewrites
    assert not reasons(result)


def test_a_weight_that_is_computed_may_be_late_where_only_the_norm_reads_the_sum() -> None:
    model = add_norm(
        nn.Identity(), lambda self, x, y: nn.functional.layer_norm(x + y, [SIZE], weight=y[0, 0].exp())
    )
    args = pair()

    graph = fused(model, *args).graph

    assert op_types(graph)[-1] == "npu.add_layer_norm.default"
    assert torch.equal(execute_ir(graph, args), model(*args))


@each_row("op_type", ["add_layer_norm", "add_rms_norm"])
def test_a_fused_op_is_differentiated(op_type: str) -> None:
    x, y = (item.double().requires_grad_() for item in pair(2, 4))
    extra = (None, None, 1e-5) if op_type == "add_layer_norm" else (None, 1e-5)

    assert torch.autograd.gradcheck(lambda a, b: getattr(torch.ops.npu, op_type)(a, b, [4], *extra), (x, y))
