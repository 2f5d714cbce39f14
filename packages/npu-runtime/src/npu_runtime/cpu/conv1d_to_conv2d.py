"""1-d convolutions as 2-d ones, of images one pixel high, which have packed kernels."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from npu_ir import Graph, OpNode, TensorType, Value
from npu_ir.ops.effects import is_pure
from npu_passes import Edit, Pass, within
from npu_passes.rewriting.arguments import arguments_of
from npu_passes.rewriting.value_replacement import match_strides
from npu_passes.rewriting.weight_dependence import weight_problem
from npu_runtime.cpu.layouts import is_elementwise
from npu_runtime.cpu.onednn import type_problem

_HEIGHT = (
    2  # the axis that an image [batch, channels, 1, width] has and a signal [batch, channels, width] has not
)
_CONVOLUTIONS = MappingProxyType(
    {
        "aten.conv1d.default": "aten.conv2d.default",
        "aten.conv1d.padding": "aten.conv2d.padding",
        "aten.conv_transpose1d.default": "aten.conv_transpose2d.input",
    }
)
_POOLS = MappingProxyType(
    {
        "aten.max_pool1d.default": "aten.max_pool2d.default",
        "aten.avg_pool1d.default": "aten.avg_pool2d.default",
        "aten.adaptive_avg_pool1d.default": "aten.adaptive_avg_pool2d.default",
    }
)
# What the new axis gets in lists of one number per axis.
_OF_HEIGHT = MappingProxyType(
    {"stride": 1, "padding": 0, "output_padding": 0, "dilation": 1, "kernel_size": 1, "output_size": 1}
)
# The same for signals and images, beside what is elementwise.
_OF_ANY_RANK = frozenset(
    {
        *("aten.batch_norm.default", "aten._native_batch_norm_legit_no_training.default"),
        *("aten.hardswish.default", "aten.prelu.default", "aten.cat.default"),
        *("aten.constant_pad_nd.default", "aten.pad.default"),
    }
)


class Conv1dToConv2d(Pass):
    """Compute 1-d convolutions as 2-d ones, for the passes that lay out images and pack weights of these.

    A signal of [batch, channels, width] becomes an image of height 1, by a view. So do those of the pools and
    elementwise ops after convolutions, so that the signals between two convolutions are images, too. Only
    convolutions of float32 and of fixed sizes, by weights that are known before the call.
    """

    name = "conv1d-to-conv2d"
    numerics = within(1e-5)
    after = ("conv-bn-folding", "conv-add-folding", "constant-folding")
    before = ("channels-last", "pack-panels")

    def run(self, graph: Graph) -> bool:
        images: dict[Value, Value] = {}  # by signal, also by those that views of images are
        made: list[Value] = []
        for node in list(graph.body):
            if node.op_type in _CONVOLUTIONS:
                problem = _problem(graph, node)
                if problem is not None:
                    self.refuse(node, problem, "conv1d-to-conv2d")
                    continue
            elif not _keeps_images(node, images):
                continue
            made += self._replace(graph, node, images)
        for value in reversed(made):
            if not value.use_count and value.producer is not None:
                graph.erase(value.producer)
        return bool(made)

    def _replace(self, graph: Graph, node: OpNode, images: dict[Value, Value]) -> list[Value]:
        """Replace a node by one of images, and return what makes the signal of its result, needed or not."""
        with self.rewrite(graph, "conv1d-to-conv2d", node) as edit:
            arguments = {
                name: _of_image(name, item, edit, images) for name, item in arguments_of(node).items()
            }
            op_type = {**_CONVOLUTIONS, **_POOLS}.get(node.op_type, node.op_type)
            image, *_ = edit.calls(op_type, name=node.name, **arguments)
            view = edit.call("aten.squeeze.dim", image, _HEIGHT)
            signal = match_strides(edit, view, node.outputs[0])
            edit.replace(node.outputs[0], signal)
        images[signal] = image
        return list(dict.fromkeys((view, signal)))


def _problem(graph: Graph, node: OpNode) -> str | None:
    """Return the reason why a 1-d convolution stays; None if it can be a 2-d one."""
    arguments = arguments_of(node, defaults=True)
    signal, weight, bias = (arguments[name] for name in ("input", "weight", "bias"))
    if signal.tensor_type.rank != 3:
        return f"%{signal.name} is {signal.type}, not a batch of signals"
    return type_problem(signal, weight, bias, node.outputs[0]) or weight_problem(graph, weight)


def _keeps_images(node: OpNode, images: Mapping[Value, Value]) -> bool:
    """Return whether a node reads signals that are images, and computes the same of these."""
    if node.regions or not is_pure(node) or not any(value in images for value in node.inputs):
        return False
    signal, *others = node.outputs
    if not _is_signal(signal) or any(value.use_count for value in others):
        return False
    arguments = arguments_of(node, defaults=True)
    if node.op_type == "aten.cat.default":
        return bool(arguments["dim"] == 1)
    if len(arguments.get("pad", ())) > 2 or arguments.get("mode", "constant") != "constant":
        return False
    if node.op_type in _POOLS or node.op_type in _OF_ANY_RANK:
        return node.inputs[0] in images
    return is_elementwise(node.op_type)


def _is_signal(value: Value) -> bool:
    type = value.type
    return isinstance(type, TensorType) and type.rank == 3 and not type.symbols and type.strides is None


def _of_image(name: str, item: Any, edit: Edit, images: dict[Value, Value]) -> Any:
    """Return the argument of the op of images for one of the op of signals."""
    if isinstance(item, Value):
        return _image(item, edit, images)
    if not isinstance(item, list):
        return item
    if any(isinstance(part, Value) for part in item):
        return [_of_image(name, part, edit, images) for part in item]
    return [_OF_HEIGHT[name], *item] if name in _OF_HEIGHT and item else item


def _image(value: Value, edit: Edit, images: dict[Value, Value]) -> Value:
    """Return a value with the axis of the height; what has one axis or none is broadcast as it is."""
    if not isinstance(value.type, TensorType) or value.type.rank < 2:
        return value
    if value not in images:
        images[value] = image = edit.call("aten.unsqueeze.default", value, -2)
        if weight_problem(edit.graph, value) is None:
            edit.to_prologue(image)
    return images[value]
