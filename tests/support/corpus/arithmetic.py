"""Operators by themselves: activation, elementwise, reduction, comparison, casts."""

import torch
from torch import arange, nn, rand, randn, tensor
from torch.nn import functional as fn

from tests.support.corpus.case import Call, Table, call, floats

CASES = Table(floats((2, 3, 4)))
two = floats((2, 3), (3,))
function = CASES.function


def positive() -> Call:
    return call(rand(2, 3) + 0.1)


# Activation

function("relu", torch.relu, op="aten.relu.default")
function("gelu", lambda x: fn.gelu(x) + fn.gelu(x, approximate="tanh"), op="aten.gelu.default")
function("silu", fn.silu, op="aten.silu.default")
function("sigmoid", torch.sigmoid, op="aten.sigmoid.default")
function("tanh", torch.tanh, op="aten.tanh.default")
function("leaky_relu", lambda x: fn.leaky_relu(x, 0.2), op="aten.leaky_relu.default")
function("hardswish", fn.hardswish, op="aten.hardswish.default")
function("glu", lambda x: fn.glu(x, dim=2))
function("threshold_elu", lambda x: fn.threshold(x, 0.1, 20.0) + fn.elu(x, 0.5) + fn.celu(x) + fn.selu(x))
CASES.module("prelu", lambda: nn.PReLU(3))

# Elementwise

function("add", lambda x, y: torch.add(x, y, alpha=2.5), two, op="aten.add.Tensor")
function("sub", lambda x, y: torch.sub(x, y, alpha=-3), two, op="aten.sub.Tensor")
function("mul", torch.mul, two, op="aten.mul.Tensor")
function("div", lambda x, y: torch.div(x, y, rounding_mode="floor") + x / y, two, op="aten.div.Tensor_mode")
function("pow", lambda x, y: x**2 + 2**x + x.abs() ** y, two, op="aten.pow.Tensor_Scalar")
function("sqrt", torch.sqrt, positive, op="aten.sqrt.default")
function("rsqrt", torch.rsqrt, positive, op="aten.rsqrt.default")
function("neg", torch.neg, op="aten.neg.default")
function("abs", torch.abs, op="aten.abs.default")
function("exp", torch.exp, op="aten.exp.default")
function("log", torch.log, positive, op="aten.log.default")
function("clamp", lambda x: torch.clamp(x, -0.5, 0.5), op="aten.clamp.default")
function("lerp", lambda x, y: torch.lerp(x, y, 0.3) + torch.lerp(x, y, y), two, op="aten.lerp.Scalar")
function("addcmul", lambda x, y: torch.addcmul(x, y, x, value=0.5), two, op="aten.addcmul.default")
function("addcdiv", lambda x, y: torch.addcdiv(x, x, y, value=2), two)
function(
    "integer_arithmetic", lambda x: (x // 3, x % 3, -x, x << 2, x & 5, ~x, x / 2), lambda: call(arange(-4, 5))
)
function("remainders", lambda x, y: (torch.fmod(x, y), torch.remainder(x, y), x // y), two)
function("nan_handling", lambda x: (x.nan_to_num(1.0), x.isnan(), x.nansum()),
    lambda: call(tensor([1.0, float("nan"), float("inf"), -0.0])))  # fmt: skip

# Reduction

function("mean", lambda x: x.mean((0, 2), keepdim=True), op="aten.mean.dim")
function("sum", lambda x: x.sum(1), op="aten.sum.dim_IntList")
function("max", lambda x: (x.max(), x.max(dim=1), x.max(dim=2, keepdim=True).values), op="aten.max.dim")
function("min", lambda x: x.min(dim=1)[1], op="aten.min.dim")
function("amax", lambda x: torch.amax(x, (1, 2)), op="aten.amax.default")
function("amin", lambda x: torch.amin(x, -1, keepdim=True), op="aten.amin.default")
function("var_mean", lambda x: torch.var_mean(x, dim=1, correction=0))
function("norms", lambda x: (x.norm(), torch.linalg.vector_norm(x, 3, dim=1), torch.linalg.matrix_norm(x)))
function("cumulative", lambda x: (x.cumsum(1), x.cumprod(2), *torch.cummax(x, 0), x.logcumsumexp(1)))
function(
    "logic_reductions", lambda x: ((x > 0).any(1), (x > -9).all(), x.argmax(), x.argmin(1), x.count_nonzero())
)

# Comparison

function("eq", lambda x, y: (x == y, torch.eq(x, 1.0)), two, op="aten.eq.Tensor")
function("ne", lambda x, y: x != y, two, op="aten.ne.Tensor")
function("lt", lambda x: x > 0, op="aten.gt.Scalar")
function("gt", lambda x, y: (x > y, x < y, x >= 0, x <= 0), two, op="aten.lt.Tensor")
function("where", lambda x, y: torch.where(x > 0, x, y), two, op="aten.where.self")
function("where_scalars", lambda x: torch.where(x > 0, 1.0, x) + torch.where(x > 0, 1, 0),
    op="aten.where.ScalarSelf")  # fmt: skip
function("logical", lambda x, y: (x > 0).logical_xor(y > 0).logical_not() | (x > 1), two)

# Casts and copies

function("to_dtype", lambda x: x.to(torch.float64), op="aten.to.dtype")
function(
    "_to_copy", lambda x: torch.ops.aten._to_copy.default(x, dtype=torch.int32), op="aten._to_copy.default"
)
function("contiguous", lambda x: x.transpose(0, 1).contiguous(), op="aten.contiguous.default")
function("clone", lambda x: x.clone(memory_format=torch.contiguous_format), op="aten.clone.default")
function("type_as", lambda x, y: x.type_as(y), lambda: call(randn(3), arange(3)))
function("to_other", lambda x, y: x.to(y) + y, lambda: call(arange(3), randn(3)))
function("to_device_and_dtype", lambda x: x.to("cpu", torch.bfloat16, copy=True))
function("cast_methods",
    lambda x: (x.half(), x.double(), x.long(), x.bool(), x.bfloat16(), x.char(), x.byte()),
    lambda: call(rand(5) * 100))  # fmt: skip
function("view_as_dtype", lambda x: x.view(torch.int32))
