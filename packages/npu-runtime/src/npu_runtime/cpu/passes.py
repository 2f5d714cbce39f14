"""The passes for the CPU, and the pipelines that have them."""

from __future__ import annotations

from npu_passes import Pass, Pipeline
from npu_passes.pipeline import DEFAULT, TRAIN
from npu_runtime.cpu.channels_last import ChannelsLast
from npu_runtime.cpu.pack_convolution import PackConvolution
from npu_runtime.cpu.pack_linear import PackLinear
from npu_runtime.cpu.winograd import Winograd

PASSES: tuple[type[Pass], ...] = (ChannelsLast, Winograd, PackConvolution, PackLinear)
PIPELINE = Pipeline(
    "cpu",
    ",".join([DEFAULT, *(item.name for item in PASSES)]),
    "The default, then what is faster on a CPU: oneDNN's fused ops with packed weights, channels-last, Winograd.",
)
TRAINING = Pipeline(
    "train-cpu",
    f"{TRAIN},{ChannelsLast.name}",
    "The train pipeline, then images in channels-last where that saves more than the copies cost.",
)
