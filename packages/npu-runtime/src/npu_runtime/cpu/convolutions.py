"""2-d convolutions with normalized arguments."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from npu_ir import Graph, OpNode, Value
from npu_passes.rewriting.arguments import arguments_of
from npu_passes.rewriting.weight_dependence import weight_problem
from npu_runtime.cpu.onednn import type_problem

CONVOLUTIONS = ("aten.conv2d.default", "aten.conv2d.padding", "aten.convolution.default")
TRANSPOSED = "aten.conv_transpose2d.input"


@dataclass(frozen=True, slots=True)
class Convolution:
    """2-d convolution.

    Attributes:
        node: The node.
        input: [batch, in, height, width].
        weight: [out, in / groups, *kernel].
        bias: [out]; None stands for zeros.
        stride: Of both dimensions, like padding and dilation.
        padding: Zeros on either side.
        dilation: Distance between the elements of the kernel.
        groups: The number of groups of channels.
    """

    node: OpNode
    input: Value
    weight: Value
    bias: Value | None
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    groups: int

    @property
    def output(self) -> Value:
        return self.node.outputs[0]

    @property
    def out_channels(self) -> int:
        return self.weight.tensor_type.static_shape[0]

    @property
    def in_channels(self) -> int:
        return self.input.tensor_type.static_shape[1]

    @property
    def kernel(self) -> tuple[int, int]:
        _, _, height, width = self.weight.tensor_type.static_shape
        return height, width

    @property
    def positions(self) -> int:
        """Number of output pixels of all images."""
        batch, _, height, width = self.output.tensor_type.static_shape
        return batch * height * width

    @property
    def flops(self) -> int:
        return 2 * self.positions * math.prod(self.weight.tensor_type.static_shape)

    @property
    def weight_bytes(self) -> int:
        return 4 * math.prod(self.weight.tensor_type.static_shape)

    @property
    def is_depthwise(self) -> bool:
        return self.groups == self.in_channels == self.out_channels > 1


def convolution_problem(graph: Graph, node: OpNode) -> str | None:
    """Return the reason why oneDNN's packed kernels cannot compute a convolution; None if they can."""
    return shape_problem(node) or weight_problem(graph, arguments_of(node)["weight"])


def transposed_problem(graph: Graph, node: OpNode) -> str | None:
    """Return the reason why a node of `TRANSPOSED` cannot have packed weights; None if it can."""
    arguments = arguments_of(node, defaults=True)
    if arguments["input"].tensor_type.rank != 4:
        return f"%{arguments['input'].name} is {arguments['input'].type}, not a batch of images"
    if arguments["groups"] != 1:
        return f"it has {arguments['groups']} groups"
    if set(arguments["dilation"]) != {1}:
        return f"it has a dilation of {arguments['dilation']}"
    problem = type_problem(arguments["input"], arguments["weight"], arguments["bias"], node.outputs[0])
    return problem or weight_problem(graph, arguments["weight"])


def shape_problem(node: OpNode) -> str | None:
    """Return the reason why the cost model does not cover a convolution; None if it does."""
    arguments = arguments_of(node, defaults=True)
    if arguments["input"].tensor_type.rank != 4 or arguments["weight"].tensor_type.rank != 4:
        return f"%{arguments['input'].name} is {arguments['input'].type}, not a batch of images"
    if arguments.get("transposed"):
        return "it is a transposed convolution"
    problem = type_problem(arguments["input"], arguments["weight"], arguments["bias"], node.outputs[0])
    if problem is not None:
        return problem
    if _padding(arguments) is None:
        return "it is padded with more zeros on one side than on the other"
    return None


def convolution_of(node: OpNode) -> Convolution:
    """Return the convolution that a node computes; `shape_problem` must be None."""
    arguments = arguments_of(node, defaults=True)
    padding = _padding(arguments)
    assert padding is not None
    return Convolution(
        node,
        arguments["input"],
        arguments["weight"],
        arguments["bias"],
        _pair(arguments["stride"]),
        padding,
        _pair(arguments["dilation"]),
        arguments["groups"],
    )


def _padding(given: dict[str, Any]) -> tuple[int, int] | None:
    """Return the numbers of zeros on either side; None if the sides differ."""
    padding = given["padding"]
    if padding == "valid":
        return 0, 0
    if padding != "same":
        return _pair(padding)
    # The zeros of both sides together: an odd number would be split unevenly.
    reach = [
        stride * (size - 1)
        for stride, size in zip(
            _pair(given["dilation"]), given["weight"].tensor_type.static_shape[2:], strict=True
        )
    ]
    return (reach[0] // 2, reach[1] // 2) if all(width % 2 == 0 for width in reach) else None


def _pair(sizes: Sequence[int]) -> tuple[int, int]:
    return (sizes[0], sizes[-1])
