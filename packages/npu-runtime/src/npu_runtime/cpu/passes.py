"""Passes for the CPU, and the pipelines of these passes."""

from __future__ import annotations

from npu_passes import Pass, Pipeline
from npu_passes.core.registry import DEFAULT, TRAIN
from npu_passes.library.fusion.fuse_attention import FuseAttention
from npu_passes.library.fusion.fuse_rms_norm import FuseRmsNorm
from npu_passes.library.fusion.fuse_rotary import FuseRotary
from npu_passes.library.fusion.group_heads import GroupHeads
from npu_runtime.cpu.batch_norm_to_sums import BatchNormToSums
from npu_runtime.cpu.channels_last import ChannelsLast
from npu_runtime.cpu.conv1d_to_conv2d import Conv1dToConv2d
from npu_runtime.cpu.gelu_to_sigmoid import GeluToSigmoid
from npu_runtime.cpu.pack_convolution import PackConvolution
from npu_runtime.cpu.pack_linear import PackLinear
from npu_runtime.cpu.pack_matrix import PackMatrix
from npu_runtime.cpu.pack_panels import PackPanels
from npu_runtime.cpu.pack_recurrent import PackRecurrent
from npu_runtime.cpu.split_loss import SplitLoss
from npu_runtime.cpu.winograd import Winograd

_INFERENCE: tuple[type[Pass], ...] = (ChannelsLast, Winograd, PackConvolution, PackLinear)
_TRAINING: tuple[type[Pass], ...] = (BatchNormToSums, GeluToSigmoid, SplitLoss)
PASSES = (*_INFERENCE, *_TRAINING, Conv1dToConv2d, PackPanels, PackRecurrent, PackMatrix)
PIPELINE = Pipeline(
    "cpu",
    ",".join([DEFAULT, *(item.name for item in _INFERENCE)]),
    "The default pipeline, then CPU passes: oneDNN's fused ops with packed weights, channels-last, Winograd.",
)
TRAINING = Pipeline(
    "train-cpu",
    ",".join([TRAIN, *(item.name for item in _TRAINING), "channels-last{weights=false}"]),
    "The train pipeline, then CPU passes: batch norms by sums, GELU by a sigmoid, losses in planned memory, "
    "channels-last.",
)
HOST_TRAINING = Pipeline(
    "train-host",
    f"{TRAIN},channels-last{{for_host=true,weights=false}},scalars-to-tensors{{in_memory=true}}",
    "The train pipeline, then channels-last for the kernels of the backend host, and numbers in memory.",
)
# Ops that PyTorch defines by others, which have kernels: what they make of them is what PyTorch runs, too.
_COMPOSITES = (
    *("einsum.default", "type_as.default", "multiply.Tensor", "where.Scalar", "where.ScalarOther"),
)
HOST = Pipeline(
    "host",
    ",".join(
        [
            f"decompose{{ops=[{','.join(f'aten.{name}' for name in _COMPOSITES)}]}}",
            DEFAULT,
            FuseRmsNorm.name,
            FuseRotary.name,
            f"{FuseAttention.name}{{bfloat16_softmax=false}}",
            GroupHeads.name,
            Conv1dToConv2d.name,
            "channels-last{for_host=true}",
            PackPanels.name,
            PackRecurrent.name,
            PackMatrix.name,
            PackConvolution.name,
        ]
    ),
    "Ops in their parts that have kernels, the default pipeline, then RMS norms, rotary embeddings and "
    "attention as one op, grouped heads, 1-d convolutions as 2-d ones, channels-last, weights packed for the "
    "kernels of the backend host; those of grouped convolutions for oneDNN.",
)
