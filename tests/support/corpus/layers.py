"""Layers by themselves: convolution, linear algebra, normalization."""

import torch
from torch import nn, randn
from torch.nn import functional as fn

from tests.support.corpus.case import Table, call, floats

CASES = Table()
function, module = CASES.function, CASES.module

# Convolution

module("conv1d", lambda: nn.Conv1d(3, 4, 3), floats((2, 3, 9)), op="aten.conv1d.default")
module("conv2d", lambda: nn.Conv2d(3, 4, 3), floats((2, 3, 6, 5)), op="aten.conv2d.default")
module("conv3d", lambda: nn.Conv3d(2, 3, 2), floats((1, 2, 4, 4, 4)), op="aten.conv3d.default")
module("conv2d_without_bias", lambda: nn.Conv2d(3, 4, 3, bias=False), floats((2, 3, 6, 5)))
module(
    "conv2d_same", lambda: nn.Conv2d(3, 4, 3, padding="same"), floats((2, 3, 6, 5)), op="aten.conv2d.padding"
)
module("conv2d_depthwise", lambda: nn.Conv2d(4, 8, 3, stride=2, padding=1, groups=4), floats((2, 4, 6, 5)))
module("conv2d_unbatched", lambda: nn.Conv2d(3, 4, 3), floats((3, 6, 5)))
module("conv_transpose2d",
    lambda: nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1, groups=2),
    floats((1, 4, 4, 4)), op="aten.conv_transpose2d.input")  # fmt: skip
module("conv_transpose_output_size", lambda: nn.ConvTranspose2d(2, 3, 3, stride=2),
    lambda: call(randn(1, 2, 4, 4), output_size=[10, 9]))  # fmt: skip
function("convolution", lambda x, w: torch.convolution(x, w, None, [1], [1], [1], False, [0], 1),
    floats((2, 3, 5), (4, 3, 3)), op="aten.convolution.default")  # fmt: skip

# Linear algebra

module("linear", lambda: nn.Linear(4, 3), floats((2, 4)), op="aten.linear.default")
module("linear_without_bias", lambda: nn.Linear(4, 3, bias=False), floats((2, 5, 4)))
module("bilinear", lambda: nn.Bilinear(3, 4, 2), floats((5, 3), (5, 4)), op="aten.bilinear.default")
function("addmm", lambda b, x, y: torch.addmm(b, x, y, beta=0.5, alpha=2), floats((4,), (2, 3), (3, 4)),
    op="aten.addmm.default")  # fmt: skip
function("mm", torch.mm, floats((2, 3), (3, 4)), op="aten.mm.default")
function("bmm", torch.bmm, floats((2, 3, 4), (2, 4, 5)), op="aten.bmm.default")
function("matmul", torch.matmul, floats((2, 1, 3, 4), (5, 4, 2)), op="aten.matmul.default")
function("matmul_vectors", lambda x, y: x @ y, floats((4,), (4,)))
function("einsum", lambda x, y: torch.einsum("bij,bjk->bik", x, y), floats((2, 3, 4), (2, 4, 5)),
    op="aten.einsum.default")  # fmt: skip
function("einsum_ellipsis", lambda x: torch.einsum("...ij->...ji", x), floats((2, 3, 4)))
function("svd_partly_used", lambda x: torch.linalg.svd(x, full_matrices=False).S, floats((4, 3)))
function("qr", torch.linalg.qr, floats((4, 3)))
function("multi_dot", lambda *matrices: torch.linalg.multi_dot(matrices), floats((2, 3), (3, 4), (4, 2)))


# Normalization without mutation

module("batch_norm", lambda: nn.BatchNorm2d(3).eval(), floats((2, 3, 4, 4)), op="aten.batch_norm.default")
module("batch_norm_without_affine", lambda: nn.BatchNorm2d(3, affine=False).eval(), floats((2, 3, 4, 4)))
module("batch_norm_without_statistics", lambda: nn.BatchNorm1d(3, track_running_stats=False), floats((4, 3)))
module("layer_norm", lambda: nn.LayerNorm((3, 4)), floats((2, 3, 4)), op="aten.layer_norm.default")
module("layer_norm_without_bias", lambda: nn.LayerNorm(4, bias=False), floats((2, 4)))
module("group_norm", lambda: nn.GroupNorm(2, 4), floats((2, 4, 3)), op="aten.group_norm.default")
module("instance_norm", lambda: nn.InstanceNorm2d(3), floats((2, 3, 4, 4)), op="aten.instance_norm.default")
module("instance_norm_affine", lambda: nn.InstanceNorm1d(3, affine=True), floats((2, 3, 4)))
module("rms_norm", lambda: nn.RMSNorm(4), floats((2, 4)), op="aten.rms_norm.default")
module("local_response_norm", lambda: nn.LocalResponseNorm(2), floats((2, 4, 3, 3)))
function("normalize", fn.normalize, floats((2, 4)))
