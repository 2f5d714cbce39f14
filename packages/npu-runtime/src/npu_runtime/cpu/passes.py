"""The passes for the CPU, and the pipeline that has them."""

from __future__ import annotations

from npu_passes import Pass, Pipeline
from npu_passes.pipeline import DEFAULT
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
