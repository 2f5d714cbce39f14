"""Operators by themselves: elementwise, shape, concatenation, reduction, indexing, comparison, casts."""

from __future__ import annotations

import torch
from torch import arange, nn, rand, randint, randn, tensor
from torch.nn import functional as fn

from tests.npu_ir.corpus.case import Call, Table, call

CASES = Table()
function = CASES.function


def one() -> Call:
    return call(randn(2, 3, 4))


def positive() -> Call:
    return call(rand(2, 3) + 0.1)


def two() -> Call:
    return call(randn(2, 3), randn(3))


# Activation

function("relu", torch.relu, one, op="aten.relu.default")
function("gelu", lambda x: fn.gelu(x) + fn.gelu(x, approximate="tanh"), one, op="aten.gelu.default")
function("silu", fn.silu, one, op="aten.silu.default")
function("sigmoid", torch.sigmoid, one, op="aten.sigmoid.default")
function("tanh", torch.tanh, one, op="aten.tanh.default")
function("leaky_relu", lambda x: fn.leaky_relu(x, 0.2), one, op="aten.leaky_relu.default")
function("hardswish", fn.hardswish, one, op="aten.hardswish.default")
function("glu", lambda x: fn.glu(x, dim=2), one)
function("threshold_elu", lambda x: fn.threshold(x, 0.1, 20.0) + fn.elu(x, 0.5) + fn.celu(x) + fn.selu(x), one)
CASES.module("prelu", lambda: nn.PReLU(3), one)

# Elementwise

function("add", lambda x, y: torch.add(x, y, alpha=2.5), two, op="aten.add.Tensor")
function("sub", lambda x, y: torch.sub(x, y, alpha=-3), two, op="aten.sub.Tensor")
function("mul", torch.mul, two, op="aten.mul.Tensor")
function("div", lambda x, y: torch.div(x, y, rounding_mode="floor") + x / y, two, op="aten.div.Tensor_mode")
function("pow", lambda x, y: x**2 + 2**x + x.abs() ** y, two, op="aten.pow.Tensor_Scalar")
function("sqrt", torch.sqrt, positive, op="aten.sqrt.default")
function("rsqrt", torch.rsqrt, positive, op="aten.rsqrt.default")
function("neg", torch.neg, one, op="aten.neg.default")
function("abs", torch.abs, one, op="aten.abs.default")
function("exp", torch.exp, one, op="aten.exp.default")
function("log", torch.log, positive, op="aten.log.default")
function("clamp", lambda x: torch.clamp(x, -0.5, 0.5), one, op="aten.clamp.default")
function("lerp", lambda x, y: torch.lerp(x, y, 0.3) + torch.lerp(x, y, y), two, op="aten.lerp.Scalar")
function("addcmul", lambda x, y: torch.addcmul(x, y, x, value=0.5), two, op="aten.addcmul.default")
function("addcdiv", lambda x, y: torch.addcdiv(x, x, y, value=2), two)
function("integer_arithmetic", lambda x: (x // 3, x % 3, -x, x << 2, x & 5, ~x, x / 2), lambda: call(arange(-4, 5)))
function("remainders", lambda x, y: (torch.fmod(x, y), torch.remainder(x, y), x // y), two)
function("nan_handling", lambda x: (x.nan_to_num(1.0), x.isnan(), x.nansum()), lambda: call(tensor([1.0, float("nan"), float("inf"), -0.0])))

# Shape

function("view", lambda x: x.view(6, -1), one, op="aten.view.default")
function("reshape", lambda x: x.transpose(0, 1).reshape(6, 4), one, op="aten.reshape.default")
function("permute", lambda x: x.permute(2, 0, 1), one, op="aten.permute.default")
function("transpose", lambda x: x.transpose(0, -1), one, op="aten.transpose.int")
function("flatten", lambda x: x.flatten(1), one, op="aten.flatten.using_ints")
function("squeeze", lambda x: x.squeeze(1) + x.squeeze().unsqueeze(0), lambda: call(randn(1, 1, 3)), op="aten.squeeze.dim")
function("unsqueeze", lambda x: x.unsqueeze(-1), one, op="aten.unsqueeze.default")
function("expand", lambda x: x.expand(3, -1, 4), lambda: call(randn(2, 1)), op="aten.expand.default")
function("repeat", lambda x: x.repeat(2, 1, 1, 2), one, op="aten.repeat.default")
function("unflatten_movedim", lambda x: x.unflatten(2, (2, 2)).movedim(0, -1), one)
function("roll_flip_rot90", lambda x: x.roll((1, 2), (0, 2)).flip(1).rot90(1, (1, 2)), one)
function("tile_repeat_interleave", lambda x: x.tile(2).repeat_interleave(2, dim=0), one)
function("diagonal_tril_triu", lambda x: x.diagonal(dim1=1, dim2=2) + x.tril().triu(-1).sum(), one)
function("broadcast_meshgrid", lambda x, y: torch.broadcast_tensors(*torch.meshgrid(x, y, indexing="xy")), lambda: call(randn(3), randn(2)))

# Concatenation and splitting

function("cat", lambda x, y: torch.cat([x, y, x], dim=1), lambda: call(randn(2, 3), randn(2, 1)), op="aten.cat.default")
function("stack", lambda x: torch.stack([x, x * 2], dim=-1), one, op="aten.stack.default")
function("split", lambda x: torch.split(x, [1, 3], dim=2), one, op="aten.split_with_sizes.default")
function("split_size", lambda x: x.split(2, dim=2)[1], one, op="aten.split.Tensor")
function("chunk", lambda x: x.chunk(3, dim=2), one, op="aten.chunk.default")
function("unbind_tensor_split", lambda x: (*x.unbind(1), *torch.tensor_split(x, (1, 2), dim=2)), one)
function("hstack_vstack", lambda x, y: (torch.hstack((x, x)), torch.vstack((x, y)), torch.dstack((x, x))), lambda: call(randn(2, 3), randn(1, 3)))

# Reduction

function("mean", lambda x: x.mean((0, 2), keepdim=True), one, op="aten.mean.dim")
function("sum", lambda x: x.sum(1), one, op="aten.sum.dim_IntList")
function("max", lambda x: (x.max(), x.max(dim=1), x.max(dim=2, keepdim=True).values), one, op="aten.max.dim")
function("min", lambda x: x.min(dim=1)[1], one, op="aten.min.dim")
function("amax", lambda x: torch.amax(x, (1, 2)), one, op="aten.amax.default")
function("amin", lambda x: torch.amin(x, -1, keepdim=True), one, op="aten.amin.default")
function("var_mean", lambda x: torch.var_mean(x, dim=1, correction=0), one)
function("norms", lambda x: (x.norm(), torch.linalg.vector_norm(x, 3, dim=1), torch.linalg.matrix_norm(x)), one)
function("cumulative", lambda x: (x.cumsum(1), x.cumprod(2), *torch.cummax(x, 0), x.logcumsumexp(1)), one)
function("logic_reductions", lambda x: ((x > 0).any(1), (x > -9).all(), x.argmax(), x.argmin(1), x.count_nonzero()), one)

# Softmax

function("softmax", lambda x: x.softmax(-1), one, op="aten.softmax.int")
function("log_softmax", lambda x: x.log_softmax(1), one, op="aten.log_softmax.int")
function("logsumexp_softmin", lambda x: x.logsumexp((0, 1)) + fn.softmin(x, dim=-1), one)

# Indexing

function("select", lambda x: x[0, :, -1], one, op="aten.select.int")
function("slice", lambda x: x[:, 1:, ::2], one, op="aten.slice.Tensor")
function("index", lambda x, i: x[i], lambda: call(randn(4, 3), tensor([3, 0, 0])), op="aten.index.Tensor")
function("gather", lambda x, i: x.gather(1, i), lambda: call(randn(2, 4), randint(0, 4, (2, 3))), op="aten.gather.default")
function("scatter", lambda x, i: x.scatter(1, i, 5.0).scatter_add(1, i, x), lambda: call(randn(2, 4), randint(0, 4, (2, 3))))
function("scatter_reduce", lambda x, i: x.scatter_reduce(1, i, x, "amax", include_self=False), lambda: call(randn(2, 4), randint(0, 4, (2, 4))))
function("index_ops", lambda x, i: (x.index_select(1, i), x.index_add(1, i, x), x.index_fill(0, i, -1), x.take(i)), lambda: call(randn(3, 3), tensor([2, 0, 1])))
function("index_with_none", lambda x, i: x[:, i], lambda: call(randn(2, 4), tensor([3, 1])), op="aten.index.Tensor")
function("index_around_none", lambda x, i: x[i, :, i], lambda: call(randn(4, 2, 4), tensor([3, 1])), op="aten.index.Tensor")
function("index_with_new_axis", lambda x, i: x[None, i, ..., None, 0], lambda: call(randn(4, 2, 3), tensor([[3, 1]])))
function("index_with_lists", lambda x: x[[0, 1], [2, 0]], one)
function("take_along_dim", lambda x: torch.take_along_dim(x, x.argsort(1), 1), one)
function("masked_fill", lambda x: x.masked_fill(x > 0, -1e9).masked_fill(x < -1, x.sum()), one)
function("one_hot", lambda x: fn.one_hot(x, 5), lambda: call(tensor([0, 4, 2])))
function("narrow_slices", lambda x: x.narrow(2, 1, 2) + x[..., -2:], one)

# Comparison

function("eq", lambda x, y: (x == y, torch.eq(x, 1.0)), two, op="aten.eq.Tensor")
function("ne", lambda x, y: x != y, two, op="aten.ne.Tensor")
function("lt", lambda x: x > 0, one, op="aten.gt.Scalar")
function("gt", lambda x, y: (x > y, x < y, x >= 0, x <= 0), two, op="aten.lt.Tensor")
function("where", lambda x, y: torch.where(x > 0, x, y), two, op="aten.where.self")
function("where_scalars", lambda x: torch.where(x > 0, 1.0, x) + torch.where(x > 0, 1, 0), one, op="aten.where.ScalarSelf")
function("isclose_allclose", lambda x, y: (torch.isclose(x, y), torch.maximum(x, y), torch.minimum(x, y)), two)
function("logical", lambda x, y: (x > 0).logical_xor(y > 0).logical_not() | (x > 1), two)

# Casts and copies

function("to_dtype", lambda x: x.to(torch.float64), one, op="aten.to.dtype")
function("_to_copy", lambda x: torch.ops.aten._to_copy.default(x, dtype=torch.int32), one, op="aten._to_copy.default")
function("contiguous", lambda x: x.transpose(0, 1).contiguous(), one, op="aten.contiguous.default")
function("clone", lambda x: x.clone(memory_format=torch.contiguous_format), one, op="aten.clone.default")
function("type_as", lambda x, y: x.type_as(y), lambda: call(randn(3), arange(3)))
function("to_other", lambda x, y: x.to(y) + y, lambda: call(arange(3), randn(3)))
function("to_device_and_dtype", lambda x: x.to("cpu", torch.bfloat16, copy=True), one)
function("cast_methods", lambda x: (x.half(), x.double(), x.long(), x.bool(), x.bfloat16(), x.char(), x.byte()), lambda: call(rand(5) * 100))
function("view_as_dtype", lambda x: x.view(torch.int32), one)

# Others

function("sort", lambda x: torch.sort(x, dim=1, descending=True, stable=True), one, op="aten.sort.stable")
function("sort_values_only", lambda x: x.sort(-1).values, one, op="aten.sort.default")
function("topk", lambda x: x.topk(2, dim=1, largest=False), one, op="aten.topk.default")
function("searchsorted", lambda a, b: torch.searchsorted(a, b, side="left") + torch.bucketize(b, a), lambda: call(arange(5.0), rand(3) * 4))
function("histogram", lambda x: torch.histc(x, 4, -2, 2), one)
function("cdist_cosine", lambda x: torch.cdist(x, x) + fn.cosine_similarity(x, x, 2).sum(), one)
function("losses", lambda x, y: (fn.cross_entropy(x, y, label_smoothing=0.1), fn.nll_loss(x.log_softmax(1), y, reduction="sum")), lambda: call(randn(4, 3), tensor([0, 2, 1, 1])))
function("losses_on_pairs", lambda x, y: (fn.mse_loss(x, y), fn.huber_loss(x, y), fn.kl_div(x, y.softmax(0), reduction="batchmean")), lambda: call(randn(2, 3), randn(2, 3)))
function("binary_losses", lambda x, w: fn.binary_cross_entropy_with_logits(x, x.sigmoid(), pos_weight=w), lambda: call(randn(4, 3), rand(3)))
