"""Savings of the ops of training steps in channels-last.

The numbers were measured with one thread of an AMD EPYC (Zen 4, AVX-512), torch 2.13. Sizes are batch x
channels x height x width.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch

from npu_ir import Graph, OpNode, TensorType, Value
from npu_passes.rewriting.arguments import arguments_of
from npu_runtime.cpu.convolutions import CONVOLUTIONS, convolution_of, shape_problem
from npu_runtime.cpu.kernel_choice import seconds_saved_by_layout

# The maximum of a window, per element of it: 1.7 ms for 32 x 16 x 28 x 28 and 2 x 2, and 0.15 ms in
# channels-last.
_WINDOW = 4.0e-9
# Both products of a convolution's gradients, per multiplication and addition: 2.1 ms for 32 x 16 x 14 x 14
# to 32 channels, and 1.6 ms in channels-last, where oneDNN needs no copies to its own layout.
_GRADIENTS = 2.5e-12


def seconds_saved_in_training(graph: Graph, node: OpNode) -> float | None:
    """Return the seconds that an op of training steps saves in channels-last; None for any other op.

    These ops are convolutions whose weights are trained, pools that return indices, and the gradients of
    both.

    Args:
        graph: The graph of the step.
        node: A node of it.
    """
    if node.op_type in CONVOLUTIONS:
        weight = arguments_of(node)["weight"]
        if weight not in graph.updates or shape_problem(node) is not None:
            return None
        return seconds_saved_by_layout(convolution_of(node))
    saved = _SAVED.get(node.op_type)
    return None if saved is None or not all(map(_is_measured, _images(node))) else saved(node)


def _images(node: OpNode) -> list[Value]:
    return [value for value in node.inputs if isinstance(value.type, TensorType) and value.type.rank > 1]


def _is_measured(value: Value) -> bool:
    """Return whether a value is an image, or a tensor of that rank, that the measurements cover."""
    type = value.tensor_type
    return type.rank == 4 and type.dtype in (torch.float32, torch.int64) and not type.symbols


def _zero_seconds(_: OpNode) -> float:
    return 0.0


def _pool(node: OpNode) -> float:
    window: int = math.prod(arguments_of(node)["kernel_size"])
    return _WINDOW * window * math.prod(node.outputs[0].tensor_type.static_shape)


def _gradients(node: OpNode) -> float:
    arguments = arguments_of(node)
    if arguments["transposed"] or arguments["groups"] != 1:
        return 0.0
    grad, weight = arguments["grad_output"], arguments["weight"]
    assert isinstance(grad, Value)
    assert isinstance(weight, Value)
    batch, _, height, width = grad.tensor_type.static_shape
    return _GRADIENTS * 2 * batch * height * width * math.prod(weight.tensor_type.static_shape)


_SAVED: Mapping[str, Callable[[OpNode], float]] = {
    "aten.max_pool2d_with_indices.default": _pool,
    "aten.max_pool2d_with_indices_backward.default": _zero_seconds,
    "aten.avg_pool2d_backward.default": _zero_seconds,
    "aten._adaptive_avg_pool2d_backward.default": _zero_seconds,
    "aten.convolution_backward.default": _gradients,
}
