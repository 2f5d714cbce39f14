"""oneDNN convolutions in channels-last with packed weights and fused sums and activations."""

from __future__ import annotations

from typing import Any

from npu_ir import Graph, OpNode, Value
from npu_passes import within
from npu_passes.rewriting.value_replacement import match_strides
from npu_runtime.cpu import onednn
from npu_runtime.cpu.convolution_pass import ConvolutionPass
from npu_runtime.cpu.convolutions import Convolution, convolution_of
from npu_runtime.cpu.costs import is_channels_last, packing_pays
from npu_runtime.cpu.onednn import (
    NOTHING,
    RELU,
    activation_of,
    is_relu,
    only_reader,
    other_summand,
)


class PackConvolution(ConvolutionPass):
    """Compute convolutions in channels-last by ``mkldnn::_convolution_pointwise``, with packed weights.

    1. A convolution, and an activation that oneDNN can fuse, or none: relu, relu6, hardtanh, leaky_relu,
       gelu, silu, hardswish, sigmoid, tanh.
    2. A convolution, a tensor that is added, and a relu after that or none, if ``fuse_add`` is set.

    The weights are packed when weights are bound. Convolutions so small that the call would cost more than
    it saves stay, as do those of contiguous images, other dtypes than float32 and dynamic sizes. A fused
    relu may turn NaN into 0.

    Attributes:
        fuse_add: Fuse sums, too. Adding and applying the relu in place, as the executor does, is faster: 64
            to 256 channels of 56 x 56 take 1.15 ms, fused 1.25 ms (one thread, AVX-512, torch 2.13).
    """

    name = "pack-convolution"
    numerics = within(1e-5)
    after = ("channels-last", "winograd", "constant-folding")

    fuse_add: bool = False

    def no_gain(self, node: OpNode) -> str | None:
        """Return the reason why packing is not faster; None if it is."""
        item = convolution_of(node)
        if not is_channels_last(item.input):
            return f"%{item.input.name} is {item.input.type}, and not in channels-last"
        if not packing_pays(item):
            return f"{item.flops} FLOPs are too few to pay for the call"
        return None

    def replace(self, graph: Graph, item: Convolution) -> None:
        nodes, other, activation = _find_fusion(item, fuse_add=self.fuse_add)
        with self.rewrite(graph, self.name, *nodes) as edit:
            layout = [list(item.padding), list(item.stride), list(item.dilation), item.groups]
            size = list(
                item.input.tensor_type.static_shape
            )  # oneDNN selects the packed format for this input size
            weight = onednn.pack(edit, onednn.PACK_CONVOLUTION, item.weight, *layout, size)
            tail = [weight, onednn.dense_bias(edit, item.bias), *layout]
            type = onednn.channels_last_type(item.output.tensor_type)
            if other is None:
                result = edit.call(
                    onednn.CONVOLUTION,
                    item.input,
                    *tail,
                    *activation.arguments,
                    type=type,
                    name=item.node.name,
                )
            else:
                unary: list[Any] = ["relu" if activation is RELU else None, [], None]
                result = edit.call(
                    onednn.CONVOLUTION_ADD,
                    item.input,
                    other,
                    *tail,
                    "add",
                    1.0,
                    *unary,
                    type=type,
                    name=item.node.name,
                )
            last = nodes[-1].outputs[0]
            edit.replace(last, match_strides(edit, result, last))


def _find_fusion(item: Convolution, *, fuse_add: bool) -> tuple[list[OpNode], Value | None, Any]:
    """Return the nodes to fuse, the tensor that they add, and the activation at their end."""
    reader = only_reader(item.output)
    activation = activation_of(reader)
    if reader is not None and activation is not None:
        return [item.node, reader], None, activation
    other = other_summand(reader, item.output) if fuse_add else None
    if reader is None or other is None or not is_channels_last(other):
        return [item.node], None, NOTHING
    last = only_reader(reader.outputs[0])
    if last is not None and is_relu(last):
        return [item.node, reader, last], other, RELU
    return [item.node, reader], other, NOTHING
