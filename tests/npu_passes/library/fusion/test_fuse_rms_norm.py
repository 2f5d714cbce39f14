"""An RMS norm that is written out becomes one op."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from npu_ir import extract_ir
from npu_passes import PassManager, PassResult
from npu_passes.library.fusion.fuse_add_norm import FuseAddNorm
from npu_passes.library.fusion.fuse_rms_norm import FuseRmsNorm
from npu_passes.testing import check_pass
from tests.support.corpus.case import Holding
from tests.support.passes.pattern_cases import op_types, reasons

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
    return PassManager([FuseRmsNorm]).run(extract_ir(model.eval(), args))


def number(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape or (2, 5, SIZE)).to(dtype)


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
                graph = extract_ir(norm(dtype).to(dtype), (number(dtype=dtype),))

                assert check_pass(FuseRmsNorm, graph) == 1
                assert op_types(PassManager([FuseRmsNorm]).run(graph).graph) == ["rms_norm.default"]


@pytest.mark.smoke
def test_the_norm_of_a_sum_becomes_one_op_with_it() -> None:
    model = Holding(lambda self, x, y: self.norm(x + y), norm=WrittenNorm())
    graph = extract_ir(model.eval(), (number(), number()))

    result = PassManager([FuseRmsNorm, FuseAddNorm]).run(graph)

    assert op_types(result.graph) == ["npu.add_rms_norm.default"]


def test_the_cast_in_an_rms_norm_may_be_read_elsewhere() -> None:
    def function(self: Any, x: Tensor) -> Tensor:
        wide = x.to(torch.float64)
        normed = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * normed.to(x.dtype) + wide.to(x.dtype)

    graph = fused(Holding(function, weight=nn.Parameter(torch.rand(SIZE))), number()).graph

    assert sorted(op_types(graph)) == ["add.Tensor", "rms_norm.default", "to.dtype", "to.dtype"]


def rounding_norm(self: Any, x: Tensor, y: Tensor) -> Tensor:
    """To leave out the rounding of a float32 norm to half precision is no small difference."""
    normed = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
    return y[0, 0] * normed.to(torch.float16)


class WeightGiven(nn.Module):
    def forward(self, x: Tensor, weight: Tensor) -> Tensor:
        return weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


def norm_with_eps(eps: Any, *, keepdim: bool = True) -> nn.Module:
    def function(self: Any, x: Tensor) -> Tensor:
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=keepdim) + eps))

    return Holding(function, weight=nn.Parameter(torch.rand(SIZE)))


def test_what_is_another_norm_is_refused_with_a_reason(subtests: pytest.Subtests) -> None:
    rows = [
        (WrittenNorm(dims=1, cast=False), (number(2, SIZE, SIZE),), "over the axes [1]"),
        (WrittenNorm(size=1), (number(),), "the weight is f32[1], the input f32[2, 5, 16]"),
        (WrittenNorm(), (number(dtype=torch.float16),), "differ in dtype: f16[2, 5, 16], f32[16]"),
        (WrittenNorm().double(), (number(dtype=torch.float64),),
            "it is computed in torch.float32, which is less than torch.float64"),
        (Holding(rounding_norm), (number(), number()), "it is rounded to torch.float16"),
        (WrittenNorm(size=1, cast=False), (torch.tensor(2.0),), "the weight is f32[1], the input f32[]"),
        (WrittenNorm(cast=False), (number(dtype=torch.float64),), "differ in dtype: f64[2, 5, 16], f32[16]"),
        (WeightGiven(), (number(), number(5, SIZE)), "the weight is f32[5, 16], the input f32[2, 5, 16]"),
        (norm_with_eps(1), (number(),), "eps is not a float"),
    ]  # fmt: skip
    for model, args, reason in rows:
        with subtests.test(reason):
            result = fused(model, *args)

            assert "rms_norm.default" not in op_types(result.graph)
            assert any(reason in found for found in reasons(result))


def test_a_mean_that_drops_its_axis_makes_no_norm() -> None:
    graph = fused(norm_with_eps(1e-6, keepdim=False), number(SIZE, SIZE)).graph

    assert "rms_norm.default" not in op_types(graph)


def test_a_norm_over_an_axis_of_any_size_stays_with_a_reason() -> None:
    size = torch.export.Dim("size")
    args = number(3, SIZE), number(SIZE)
    graph = extract_ir(WeightGiven(), args, dynamic_shapes=({1: size}, {0: size}))

    result = PassManager([FuseRmsNorm]).run(graph)

    assert "rms_norm.default" not in op_types(result.graph)
    assert any("the op takes no size that is not known, here size" in found for found in reasons(result))
