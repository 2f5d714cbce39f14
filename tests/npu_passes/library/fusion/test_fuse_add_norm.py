"""A sum and the norm behind it become one op that returns both."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from npu_ir import execute_ir, extract_ir
from npu_passes import PassManager, PassResult
from npu_passes.library.fusion.fuse_add_norm import FuseAddNorm
from npu_passes.ops.fused import ADD_LAYER_NORM, ADD_RMS_NORM
from npu_passes.testing import check_pass
from tests.support.corpus.case import Holding
from tests.support.passes.pattern_cases import op_types, reasons
from tests.support.rows import each_row

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
SIZE = 16


class WrittenNorm(nn.Module):
    """The RMS norm of Llama, and with ``cast`` off that of older models."""

    def __init__(self, *, cast: bool = True, square: Any = None, dims: Any = -1, size: int = SIZE) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(size) + 0.5)
        self.cast, self.dims = cast, dims
        self.square = square or (lambda x: x.pow(2))

    def forward(self, x: Tensor) -> Tensor:
        wide = x.to(torch.float32) if self.cast else x
        normed = wide * torch.rsqrt(self.square(wide).mean(self.dims, keepdim=True) + 1e-6)
        return self.weight * (normed.to(x.dtype) if self.cast else normed)


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


def test_an_rms_norm_that_is_written_out_is_fused(subtests: pytest.Subtests) -> None:
    norm_rows = {
        "pow": (lambda dtype: WrittenNorm(cast=dtype is not torch.float64)),
        "pow-no-cast": (lambda dtype: WrittenNorm(cast=False)),
        "product": (lambda dtype: WrittenNorm(cast=False, square=lambda x: x * x)),
        "positive-axis": (lambda dtype: WrittenNorm(cast=False, dims=2)),
    }
    for dtype in DTYPES:
        for case, norm in norm_rows.items():
            with subtests.test(dtype=dtype, case=case):
                model = add_norm(norm(dtype)).to(dtype)
                graph = extract_ir(model, pair(dtype=dtype))

                assert check_pass(FuseAddNorm, graph) == 1
                assert op_types(PassManager([FuseAddNorm]).run(graph).graph) == ["npu.add_rms_norm.default"]


@pytest.mark.smoke
def test_an_rms_norm_without_sum_becomes_one_op() -> None:
    graph = fused(Holding(lambda self, x: self.norm(x), norm=WrittenNorm()), pair()[0]).graph

    assert op_types(graph) == ["rms_norm.default"]


def test_the_cast_in_an_rms_norm_may_be_read_elsewhere() -> None:
    def function(self: Any, x: Tensor) -> Tensor:
        wide = x.to(torch.float64)
        normed = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * normed.to(x.dtype) + wide.to(x.dtype)

    graph = fused(Holding(function, weight=nn.Parameter(torch.rand(SIZE))), pair()[0]).graph

    assert sorted(op_types(graph)) == ["add.Tensor", "rms_norm.default", "to.dtype", "to.dtype"]


def rounding_norm(self: Any, x: Tensor, y: Tensor) -> Tensor:
    """To leave out the rounding of a float32 norm to half precision is no small difference."""
    normed = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
    return y[0, 0] * normed.to(torch.float16)


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
        (add_norm(WrittenNorm(dims=1, cast=False)), pair(2, SIZE, SIZE), "over the axes [1]"),
        (add_norm(WrittenNorm(size=1)), pair(), "the weight is f32[1], the input f32[2, 5, 16]"),
        (add_norm(WrittenNorm()), pair(dtype=torch.float16), "differ in dtype: f16[2, 5, 16], f32[16]"),
        (add_norm(WrittenNorm().double()), pair(dtype=torch.float64),
            "it is computed in torch.float32, which is less than torch.float64"),
        (Holding(rounding_norm), pair(), "it is rounded to torch.float16"),
    ]  # fmt: skip
    for model, args, reason in rows:
        with subtests.test(reason):
            result = fused(model, *args)

            assert not {"npu.add_layer_norm.default", "npu.add_rms_norm.default"} & set(
                op_types(result.graph)
            )
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
