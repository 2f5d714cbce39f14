"""Assignment of the channels-last layout to convolutions and the ops between them."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

import torch

from npu_ir import Graph, OpNode, TensorType, Value
from npu_ir.core.types import dense_type, memory_format_strides
from npu_passes import Pass, within
from npu_passes.core.edit import Edit
from npu_passes.rewriting.arguments import arguments_of
from npu_passes.rewriting.value_replacement import match_strides
from npu_passes.rewriting.weight_dependence import Weights
from npu_runtime.cpu import onednn
from npu_runtime.cpu.convolutions import (
    CONVOLUTIONS,
    TRANSPOSED,
    convolution_of,
    convolution_problem,
    transposed_problem,
)
from npu_runtime.cpu.costs import (
    CONVOLUTION_GRADIENTS,
    is_channels_last,
    seconds_saved,
    seconds_saved_by_panels,
    seconds_saved_in_training,
    spread_seconds,
)
from npu_runtime.cpu.layouts import (
    choose_channels_last,
    is_image,
    is_layout_agnostic,
    is_layout_sensitive,
)

# Seconds: decides where nothing else does. On the host what follows a convolution costs nothing in its
# layout.
_EPILOGUE = 1e-9
_CLONE = "aten.clone.default"


class ChannelsLast(Pass):
    """Compute convolutions, and pools, sums and activations between them, in channels-last memory.

    Copies convert the layout at the borders: ``aten.clone`` with another memory format, of weights in the
    prologue. In training steps pools and gradients are included, and weights are copied in each step.
    Nodes are chosen so that they save more than the copies cost, by measurements of kernels and copies
    (`npu_runtime.cpu.costs`). Results of the graph keep their strides. Only float32 and static shapes.

    Attributes:
        for_host: Whether the backend ``host`` runs the graph, perhaps with weights packed by
            ``pack-panels``: its convolutions gain most and take weights in any layout, its batch norms of
            training steps images in any.
        weights: Whether copies of weights are in the prologue. They must not be in a training step: between
            two steps anyone may write to a weight that the step itself does not train.
    """

    for_host: bool = False
    weights: bool = True

    name = "channels-last"
    numerics = within(1e-5)
    after = ("conv-bn-folding", "conv-add-folding", "constant-folding")

    def run(self, graph: Graph) -> bool:
        weights = Weights(graph) if self.weights else frozenset[Value]()
        fixed = _weights_in_any_layout(graph) if self.for_host else frozenset()
        nodes = choose_channels_last(self._candidates(graph), weights, fixed)
        relayout = _Relayout(self, graph, weights, fixed)
        for node in graph.body:
            if node in nodes:
                relayout.replace_node(node)
        relayout.replace_results()
        return relayout.has_edited

    def _candidates(self, graph: Graph) -> dict[OpNode, float]:
        """Return the nodes that can change to channels-last, with the seconds that each saves."""
        candidates: dict[OpNode, float] = {}
        for node in graph.body:
            images = [value for value in node.inputs if is_layout_sensitive(value)]
            if all(map(is_channels_last, images)):
                if self.for_host and _makes_images(graph, node):
                    candidates[node] = _EPILOGUE
                continue
            seconds = seconds_saved_in_training(graph, node, for_host=self.for_host)
            if seconds is not None:
                candidates[node] = seconds
                continue
            if node.op_type == TRANSPOSED and self.for_host and transposed_problem(graph, node) is None:
                candidates[node] = spread_seconds(node)
            elif node.op_type not in CONVOLUTIONS:
                if is_layout_agnostic(node):
                    is_copy = node.op_type == _CLONE  # of which this pass makes some itself
                    candidates[node] = _EPILOGUE if self.for_host and not is_copy else 0.0
                continue
            absence = None if self.for_host else onednn.unavailable_reason()
            problem = absence or convolution_problem(graph, node)
            if problem is None:
                saved = seconds_saved_by_panels if self.for_host else seconds_saved
                candidates[node] = saved(convolution_of(node))
            else:
                self.refuse(node, problem, "channels-last")
        return candidates


def _weights_in_any_layout(graph: Graph) -> frozenset[Value]:
    """Return the weights of convolutions, and the gradients of those that a step trains: they stay."""
    fixed: set[Value] = set()
    for node in graph.body:
        if node.op_type in (*CONVOLUTIONS, TRANSPOSED, CONVOLUTION_GRADIENTS):
            fixed.add(arguments_of(node)["weight"])
        if node.op_type == CONVOLUTION_GRADIENTS:
            fixed.add(node.outputs[1])
    return frozenset(fixed)


def _makes_images(graph: Graph, node: OpNode) -> bool:
    """Return whether a convolution by packed weights makes contiguous images of those of one channel.

    The host writes them in channels-last as well.
    """
    image = node.outputs[0] if node.op_type in CONVOLUTIONS else None
    if image is None or not _is_convertible(image) or convolution_problem(graph, node) is not None:
        return False
    users = [user for user, _ in image.uses]
    is_copied = all(user is not None and user.op_type == _CLONE for user in users)  # as this pass leaves it
    return convolution_of(node).in_channels == 1 and not is_copied


class _Relayout:
    """Replacement of nodes, one by one, by equal nodes on images in channels-last."""

    def __init__(
        self, pass_: Pass, graph: Graph, weights: Weights | Container[Value], fixed: Container[Value]
    ) -> None:
        self.has_edited = False
        self._fixed = fixed
        self._pass = pass_
        self._graph = graph
        self._weights = weights
        self._images: dict[Value, Value] = {}  # by image: the equal one in channels-last
        self._replaced: list[OpNode] = []

    def replace_node(self, node: OpNode) -> None:
        """Add a node in channels-last beside ``node``, for readers that are replaced, too."""
        given = arguments_of(node)
        with self._pass.rewrite(self._graph, "channels-last", node) as edit:
            arguments = {name: self._convert(edit, item) for name, item in given.items()}
            if arguments == given and node.op_type not in CONVOLUTIONS:
                return  # gradients of weights of images of one pixel
            self.has_edited = True
            types = _types_of_results(node, arguments)
            outputs = edit.calls(node.op_type, types=types, name=node.name, **arguments)
            for old, new in zip(node.outputs, outputs, strict=True):
                # That of an image of one channel is contiguous again.
                is_free = _is_convertible(new) and old not in self._fixed
                is_same = is_free and new.tensor_type == old.tensor_type
                image = edit.call(_CLONE, new, memory_format=torch.channels_last) if is_same else new
                edit.graph.add_origins(image, old)
                self._images[old] = image
        self._replaced.append(node)

    def replace_results(self) -> None:
        """Remove the nodes that were replaced; their other readers get copies in the old layout."""
        for node in reversed(self._replaced):  # readers before what they read
            if any(value.use_count for value in node.outputs):
                with self._pass.rewrite(self._graph, "contiguous", node) as edit:
                    for old in filter(lambda value: value.use_count, node.outputs):
                        edit.replace(old, match_strides(edit, self._images[old], old))
            elif not node.is_erased:
                self._graph.erase(node)

    def _convert(self, edit: Edit, item: Any) -> Any:
        """Return an argument with its images converted to channels-last."""
        if isinstance(item, list):
            return [self._convert(edit, part) for part in item]
        if not isinstance(item, Value) or item in self._fixed or not _is_convertible(item):
            return item
        if item not in self._images:
            copy = edit.call(_CLONE, _strip_clone(item), memory_format=torch.channels_last)
            assert copy.producer is not None
            if item in self._weights:
                self._graph.move_to_prologue(copy.producer)
            self._images[item] = copy
        return self._images[item]


def _types_of_results(node: OpNode, arguments: Mapping[str, Any]) -> list[TensorType] | None:
    """Return the types of the results of an op on new arguments; None if PyTorch has to say so.

    Convolutions of every kind that PyTorch has for float32 on the CPU return images in channels-last where
    their images or weights are. Where an image has one channel or one pixel, both layouts are one.
    """
    if not all(map(is_image, node.outputs)):
        return None
    types = [value.tensor_type for value in node.outputs]
    if not any(map(is_layout_sensitive, node.outputs)):
        return types
    are_last = any(isinstance(item, Value) and is_channels_last(item) for item in arguments.values())
    if node.op_type not in CONVOLUTIONS or not are_last:
        return None  # not where weights stay as they are, and the image is part of a larger one
    strides = memory_format_strides(types[0].shape, torch.channels_last)
    return [dense_type(types[0].static_shape, types[0].dtype, strides)]


def _is_convertible(value: Value) -> bool:
    return is_layout_sensitive(value) and not is_channels_last(value)


def _strip_clone(value: Value) -> Value:
    """Return the input of the clone that computes ``value``, or ``value`` itself."""
    node = value.producer
    return node.inputs[0] if node is not None and node.op_type == _CLONE else value
