"""Layers by themselves: convolution, linear algebra, pooling, normalization, embedding."""

from __future__ import annotations

import torch
from torch import nn, randint, randn
from torch.nn import functional as fn

from tests.npu_ir.corpus.case import Table, call

CASES = Table()
function, module = CASES.function, CASES.module

# Convolution

module("conv1d", lambda: nn.Conv1d(3, 4, 3), lambda: call(randn(2, 3, 9)), op="aten.conv1d.default")
module("conv2d", lambda: nn.Conv2d(3, 4, 3), lambda: call(randn(2, 3, 6, 5)), op="aten.conv2d.default")
module("conv3d", lambda: nn.Conv3d(2, 3, 2), lambda: call(randn(1, 2, 4, 4, 4)), op="aten.conv3d.default")
module("conv2d_without_bias", lambda: nn.Conv2d(3, 4, 3, bias=False), lambda: call(randn(2, 3, 6, 5)))
module("conv2d_same", lambda: nn.Conv2d(3, 4, 3, padding="same"), lambda: call(randn(2, 3, 6, 5)), op="aten.conv2d.padding")
module("conv2d_depthwise", lambda: nn.Conv2d(4, 8, 3, stride=2, padding=1, groups=4), lambda: call(randn(2, 4, 6, 5)))
module("conv2d_dilated_reflect", lambda: nn.Conv2d(3, 4, 3, dilation=2, padding=2, padding_mode="reflect"), lambda: call(randn(1, 3, 6, 6)))
module("conv2d_unbatched", lambda: nn.Conv2d(3, 4, 3), lambda: call(randn(3, 6, 5)))
module("conv_transpose1d", lambda: nn.ConvTranspose1d(3, 4, 3, stride=2), lambda: call(randn(2, 3, 5)), op="aten.conv_transpose1d.default")
module(
    "conv_transpose2d",
    lambda: nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1, groups=2),
    lambda: call(randn(1, 4, 4, 4)),
    op="aten.conv_transpose2d.input",
)
module(
    "conv_transpose_output_size",
    lambda: nn.ConvTranspose2d(2, 3, 3, stride=2),
    lambda: call(randn(1, 2, 4, 4), output_size=[10, 9]),
)
function(
    "convolution",
    lambda x, w: torch.convolution(x, w, None, [1], [1], [1], False, [0], 1),
    lambda: call(randn(2, 3, 5), randn(4, 3, 3)),
    op="aten.convolution.default",
)

# Linear algebra

module("linear", lambda: nn.Linear(4, 3), lambda: call(randn(2, 4)), op="aten.linear.default")
module("linear_without_bias", lambda: nn.Linear(4, 3, bias=False), lambda: call(randn(2, 5, 4)))
module("bilinear", lambda: nn.Bilinear(3, 4, 2), lambda: call(randn(5, 3), randn(5, 4)), op="aten.bilinear.default")
function("addmm", lambda b, x, y: torch.addmm(b, x, y, beta=0.5, alpha=2), lambda: call(randn(4), randn(2, 3), randn(3, 4)), op="aten.addmm.default")
function("mm", torch.mm, lambda: call(randn(2, 3), randn(3, 4)), op="aten.mm.default")
function("bmm", torch.bmm, lambda: call(randn(2, 3, 4), randn(2, 4, 5)), op="aten.bmm.default")
function("matmul", torch.matmul, lambda: call(randn(2, 1, 3, 4), randn(5, 4, 2)), op="aten.matmul.default")
function("matmul_vectors", lambda x, y: x @ y, lambda: call(randn(4), randn(4)))
function("einsum", lambda x, y: torch.einsum("bij,bjk->bik", x, y), lambda: call(randn(2, 3, 4), randn(2, 4, 5)), op="aten.einsum.default")
function("einsum_ellipsis", lambda x: torch.einsum("...ij->...ji", x), lambda: call(randn(2, 3, 4)))
function("cholesky_solve", lambda a, b: torch.linalg.solve(a @ a.mT + torch.eye(3), b), lambda: call(randn(3, 3), randn(3, 2)))
function("svd_partly_used", lambda x: torch.linalg.svd(x, full_matrices=False).S, lambda: call(randn(4, 3)))
function("qr", torch.linalg.qr, lambda: call(randn(4, 3)))
function("multi_dot", lambda *matrices: torch.linalg.multi_dot(matrices), lambda: call(randn(2, 3), randn(3, 4), randn(4, 2)))

# Pooling

function("max_pool2d", lambda x: fn.max_pool2d(x, 2, ceil_mode=True), lambda: call(randn(1, 2, 5, 5)), op="aten.max_pool2d.default")
function("max_pool2d_indices", lambda x: fn.max_pool2d(x, 2, return_indices=True), lambda: call(randn(1, 2, 4, 4)))
function("max_unpool2d", lambda x: fn.max_unpool2d(*fn.max_pool2d(x, 2, return_indices=True), 2), lambda: call(randn(1, 2, 4, 4)))
function("avg_pool2d", lambda x: fn.avg_pool2d(x, 2, divisor_override=3), lambda: call(randn(1, 2, 4, 4)), op="aten.avg_pool2d.default")
function("avg_pool1d", lambda x: fn.avg_pool1d(x, 3, padding=1, count_include_pad=False), lambda: call(randn(1, 2, 6)))
function("adaptive_avg_pool2d", lambda x: fn.adaptive_avg_pool2d(x, (2, None)), lambda: call(randn(1, 2, 5, 4)), op="aten.adaptive_avg_pool2d.default")
function("adaptive_max_pool2d", lambda x: fn.adaptive_max_pool2d(x, 2), lambda: call(randn(1, 2, 5, 4)), op="aten.adaptive_max_pool2d.default")
function("fractional_max_pool2d", lambda x: fn.fractional_max_pool2d(x, 2, output_size=(3, 3)), lambda: call(randn(1, 2, 7, 7)))
function("lp_pool2d", lambda x: fn.lp_pool2d(x.abs(), 2.0, 2), lambda: call(randn(1, 2, 4, 4)))

# Normalization without mutation

module("batch_norm", lambda: nn.BatchNorm2d(3).eval(), lambda: call(randn(2, 3, 4, 4)), op="aten.batch_norm.default")
module("batch_norm_without_affine", lambda: nn.BatchNorm2d(3, affine=False).eval(), lambda: call(randn(2, 3, 4, 4)))
module("batch_norm_without_statistics", lambda: nn.BatchNorm1d(3, track_running_stats=False), lambda: call(randn(4, 3)))
module("layer_norm", lambda: nn.LayerNorm((3, 4)), lambda: call(randn(2, 3, 4)), op="aten.layer_norm.default")
module("layer_norm_without_bias", lambda: nn.LayerNorm(4, bias=False), lambda: call(randn(2, 4)))
module("group_norm", lambda: nn.GroupNorm(2, 4), lambda: call(randn(2, 4, 3)), op="aten.group_norm.default")
module("instance_norm", lambda: nn.InstanceNorm2d(3), lambda: call(randn(2, 3, 4, 4)), op="aten.instance_norm.default")
module("instance_norm_affine", lambda: nn.InstanceNorm1d(3, affine=True), lambda: call(randn(2, 3, 4)))
module("rms_norm", lambda: nn.RMSNorm(4), lambda: call(randn(2, 4)), op="aten.rms_norm.default")
module("local_response_norm", lambda: nn.LocalResponseNorm(2), lambda: call(randn(2, 4, 3, 3)))
function("normalize", fn.normalize, lambda: call(randn(2, 4)))

# Embedding

module("embedding", lambda: nn.Embedding(10, 4, padding_idx=0), lambda: call(randint(0, 10, (2, 3))), op="aten.embedding.default")
module("embedding_int32", lambda: nn.Embedding(10, 4), lambda: call(randint(0, 10, (2, 3), dtype=torch.int32)))
module("embedding_bag", lambda: nn.EmbeddingBag(10, 4, mode="mean"), lambda: call(randint(0, 10, (6,)), torch.tensor([0, 2, 6 - 1])))
module(
    "embedding_bag_weighted",
    lambda: nn.EmbeddingBag(10, 4, mode="sum", include_last_offset=True),
    lambda: call(randint(0, 10, (6,)), torch.tensor([0, 2, 6]), per_sample_weights=randn(6)),
)

# Images

function("interpolate_bilinear", lambda x: fn.interpolate(x, scale_factor=1.5, mode="bilinear", align_corners=True), lambda: call(randn(1, 2, 4, 4)))
function("interpolate_nearest", lambda x: fn.interpolate(x, size=(5, 7)), lambda: call(randn(1, 2, 4, 4)))
function("grid_sample", lambda x, grid: fn.grid_sample(x, grid, align_corners=False), lambda: call(randn(1, 2, 4, 4), randn(1, 3, 3, 2)))
function("pixel_shuffle", lambda x: fn.pixel_unshuffle(fn.pixel_shuffle(x, 2), 2), lambda: call(randn(1, 4, 3, 3)))
function("unfold_fold", lambda x: fn.fold(fn.unfold(x, 2), (4, 4), 2), lambda: call(randn(1, 2, 4, 4)))
function("pad_modes", lambda x: fn.pad(fn.pad(x, (1, 2), value=3.0), (1, 1, 1, 1), mode="replicate"), lambda: call(randn(1, 2, 4, 4)))
