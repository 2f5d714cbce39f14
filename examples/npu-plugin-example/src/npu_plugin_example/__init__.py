"""A plugin of npu-passes: an op, a pass and a pipeline."""

from npu_plugin_example.ops import add_relu, rescale_bits

__all__ = ["add_relu", "rescale_bits"]
