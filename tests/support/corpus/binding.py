"""Calls whose arguments are easily bound to the wrong parameter of the operator."""

import torch
from torch import nn, rand, randn, tensor
from torch.nn import functional as fn

from tests.support.corpus.case import Table, call, floats

CASES = Table(floats((3, 4)))
heads = floats((1, 4, 5, 8), (1, 4, 5, 8), (1, 4, 5, 8))
function = CASES.function


# A keyword after a positional argument that is left out

function("attention_scale_only", lambda q, k, v: fn.scaled_dot_product_attention(q, k, v, scale=0.05), heads)
function("attention_grouped_queries",
    lambda q, k, v: fn.scaled_dot_product_attention(q, k[:, :2], v[:, :2], enable_gqa=True), heads,
    op="aten.scaled_dot_product_attention.default")  # fmt: skip
function("sum_to_float64", lambda x: x.sum(dim=1, dtype=torch.float64))
function("mean_to_float64", lambda x: x.mean(dim=0, dtype=torch.float64))
function("prod_to_float64", lambda x: (x.prod(1, dtype=torch.float64), x.prod(dtype=torch.float64)))
function("vector_norm_to_float64", lambda x: torch.linalg.vector_norm(x, dtype=torch.float64))
function(
    "cumsum_to_float64", lambda x: (x.cumsum(1, dtype=torch.float64), x.softmax(-1, dtype=torch.float64))
)
function("unbiased_by_keyword",
    lambda x: (x.std(dim=1, correction=0), x.var(unbiased=False), x.std(keepdim=True, dim=0)))  # fmt: skip

# Optional tensors that are left out

CASES.module("batch_norm_statistics_only", lambda: nn.BatchNorm1d(4, affine=False).eval())
CASES.module("instance_norm_statistics_only", lambda: nn.InstanceNorm1d(4, track_running_stats=True).eval(),
    floats((2, 4, 3)))  # fmt: skip
function("layer_norm_bias_only", lambda x, b: fn.layer_norm(x, (4,), None, b), floats((3, 4), (4,)))
function("layer_norm_weight_only", lambda x, w: fn.layer_norm(x, (4,), w), floats((3, 4), (4,)))
function("group_norm_bias_only", lambda x, b: fn.group_norm(x, 2, None, b), floats((3, 4), (4,)))
function("clamp_to_tensor_max", lambda x, t: torch.clamp(x, max=t), lambda: call(randn(3, 4), rand(4)))
function("clamp_to_tensors", lambda x, t: torch.clamp(x, -t, t) + torch.clamp(x, min=t),
    lambda: call(randn(3, 4), rand(4)))  # fmt: skip
function("clamp_to_scalar_max", lambda x: torch.clamp(x, max=0.5))
function("stft_without_window", lambda x: torch.stft(x, 4, return_complex=True, center=False), floats((12,)))
function("nan_to_num_infinities_only", lambda x: torch.nan_to_num(x / 0, posinf=3.0))
function("diff_with_append", lambda x: torch.diff(x, append=x[:, :1]))
function("quantile_interpolation", lambda x: torch.quantile(x, 0.3, dim=1, interpolation="lower"))
function("cross_entropy_with_weight_by_keyword", lambda x, y, w: fn.cross_entropy(x, y, weight=w),
    lambda: call(randn(3, 4), tensor([0, 1, 2]), rand(4)))  # fmt: skip

# A scalar in the place of a tensor

function("scalar_floor_divided_by_tensor", lambda x: 7 // x)
function("scalar_before_tensor", lambda x: (1.0 - x, 2 / x, 2**x, 7 % (x.abs() + 1), torch.pow(2.0, x)))
function("scalars_before_integer_tensors", lambda x: (5 - x, 5 & x, 9 >> x, -7 // x),
    lambda: call(tensor([1, 2, 3])))  # fmt: skip
function(
    "scalar_and_tensor_mixed",
    lambda x: (x * 0.5, x + True, x - 1j, x.eq(2), torch.xlogy(2.0, x.abs()), torch.xlogy(x.abs(), 2)),
)
function("scalar_where", lambda x: torch.where(x > 0, x, 0.0) + torch.where(x > 0, 0.0, x))
function("zero_dim_tensor_beside_scalar", lambda x, s: (x * s, s + 1, s // 2, x // s),
    lambda: call(randn(3), tensor(2, dtype=torch.int16)))  # fmt: skip
function("numbers_outside_32_bits", lambda x: (x + 2**40, x * -(2**62), x & (2**63 - 1)),
    lambda: call(tensor([1, 2])))  # fmt: skip

# Tensors passed by keyword

function("searchsorted_with_sorter", lambda a, v: torch.searchsorted(a, v, sorter=a.argsort()),
    lambda: call(tensor([3.0, 1.0, 2.0]), tensor([2.0, 0.5])))  # fmt: skip
function("addcmul_by_keyword", lambda x: torch.addcmul(x, tensor2=x + 1, tensor1=x - 1, value=3))
function("index_reduce_by_keyword",
    lambda x, i: torch.index_reduce(input=x, source=x, index=i, dim=0, reduce="mean", include_self=False),
    lambda: call(randn(3, 2), tensor([0, 0, 2])))  # fmt: skip
function(
    "linear_by_keyword", lambda x, w, b: fn.linear(bias=b, weight=w, input=x), floats((2, 3), (4, 3), (4,))
)
function("where_by_keyword", lambda x: torch.where(x > 0, other=x * 2, input=-x))

# Lists of tensors, with None, empty, twice the same, two lists in one call

function("list_with_the_same_tensor", lambda x: torch.cat([x, x, x], 1))
function("lists_of_one_and_many", lambda x: torch.cat([x]) + torch.stack([x] * 12).sum(0))
function("block_diag_and_cartesian", lambda x: (torch.block_diag(x, x[:1]), torch.cartesian_prod(x[0], x[1])))
function("meshgrid_of_three", lambda x: torch.meshgrid(x[0], x[1], x[2], indexing="ij"))
function("two_lists_in_one_call", lambda x: torch._foreach_add([x, x * 2], [x * 3, x * 4], alpha=2))
function("lists_of_scalars_and_tensors", lambda x: torch._foreach_mul([x, x[0]], [2.0, 3.0]))
function("lists_of_addcmul", lambda x: torch._foreach_addcmul([x, x + 1], [x, x], [x, x], [0.5, 2.0]))
function("index_of_three_with_nones", lambda x, i: torch.ops.aten.index(x, [None, i, None, i]),
    lambda: call(randn(2, 3, 2, 3), tensor([0, 2])))  # fmt: skip
function(
    "index_put_with_nones",
    lambda x, i: (
        x.clone().index_put_((i, i), tensor(1.0)) + torch.ops.aten.index_put(x, [None, i], tensor(3.0))
    ),
    lambda: call(randn(3, 3), tensor([0, 2])),
)
function("index_assignment_with_gaps",
    lambda x, i: (lambda y: (y.__setitem__((slice(None), i, slice(None), i), 1.0), y)[1])(x.clone()),
    lambda: call(randn(2, 3, 2, 3), tensor([0, 2])))  # fmt: skip
function(
    "einsum_of_one_two_and_three", lambda x: torch.einsum("ij->i", x) + torch.einsum("ij,kj,il->i", x, x, x)
)
function("gradient_and_trapezoid", lambda x: (torch.gradient(x, dim=1)[0], torch.trapezoid(x, dx=0.5)))

# Many outputs, outputs that are lists, numbers or None

function("outputs_of_native_layer_norm", lambda x: torch.ops.aten.native_layer_norm(x, [4], None, None, 1e-5))
function("outputs_of_unbind_nested_in_topk", lambda x: [v.topk(2) for v in x.unbind(0)])
function(
    "result_none_of_backward",
    lambda x, g: torch.ops.aten.convolution_backward(
        g, x, torch.ones(1, 1, 2), [1], [1], [0], [1], False, [0], 1, [True, False, True]
    ),
    floats((1, 1, 4), (1, 1, 3)),
)
function("outputs_of_lu", lambda x: torch.linalg.lu_factor_ex(x @ x.T + torch.eye(3)))
