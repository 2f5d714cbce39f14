"""Norms over a batch, and their gradients, by sums and products of whole images."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from npu_ir import Graph, OpNode, TensorType, Value
from npu_passes import Pass, within
from npu_passes.arguments import arguments_of
from npu_passes.patterns.placing import in_strides_of
from npu_passes.rewriting import Edit

_FORWARD = ("aten._native_batch_norm_legit_functional.default", "aten._native_batch_norm_legit.no_stats")
_BACKWARD = "aten.native_batch_norm_backward.default"


@dataclass(frozen=True, slots=True)
class _Normalized:
    """What a norm leaves for its gradient.

    Attributes:
        normalized: The input, less its mean, by its standard deviation.
        inverse_deviation: One by the standard deviation of each channel: [1, channels, 1, ...].
    """

    normalized: Value
    inverse_deviation: Value


class BatchNormToSums(Pass):
    """Compute norms over a batch in training steps by sums and products, where PyTorch takes longer for them.

    1. The mean is a sum, to which the mean of what is left is added: so it is right to the last digit, also for a channel
       that is far from zero and hardly varies. The variance is a sum of squares of what differs from the mean. What is
       normalized is kept for the gradient in the place of the input.
    2. The gradient of a norm that was computed like that: ``(g - sum(g) / n - y * sum(g * y) / n) * weight / deviation`` with
       the normalized ``y``, the gradient ``g`` and ``n`` elements in a channel (Ioffe and Szegedy, 2015, section 3).

    One thread of an AMD EPYC (Zen 4, AVX-512), torch 2.13, 32 x 16 x 32 x 32, us: forward 1001, in channels-last 411, by
    sums 280; backward 277, in channels-last 386, by sums 300. PyTorch's sums are in float64 where images are contiguous
    and one by one in float32 in channels-last, with errors of 1e-7 and 4e-6; these add pairwise in float32: 2e-7.

    Attributes:
        min_elements: How many elements an input must have to pay for more calls.
    """

    name = "batch-norm-to-sums"
    numerics = within(1e-5)
    before = ("channels-last",)

    min_elements: int = 16384

    def run(self, graph: Graph) -> bool:
        norms: dict[tuple[Value, Value], _Normalized] = {}
        for node in graph.body:
            if node.op_type in _FORWARD:
                problem = self._problem(node)
                if problem is None:
                    self._norm(graph, node, norms)
                else:
                    self.refuse(node, problem, "norm")
            elif node.op_type == _BACKWARD:
                given = arguments_of(node)
                norm = norms.get((given["input"], given["save_mean"]))
                if norm is not None:
                    self._gradient(graph, node, norm)
        return bool(norms)

    def _problem(self, node: OpNode) -> str | None:
        """Return why a norm is left as it is; None if it is computed by sums."""
        given = arguments_of(node)
        type = node.inputs[0].tensor_type
        if not given["training"]:
            return "it reads running statistics"
        if type.symbols or any(value.tensor_type.dtype is not torch.float32 for value in node.inputs):
            return f"it is of {', '.join(str(value.type) for value in node.inputs)}"
        elements = math.prod(type.sizes)
        if elements < self.min_elements:
            return f"{elements} elements are too few to pay for more calls"
        return None

    def _norm(self, graph: Graph, node: OpNode, norms: dict[tuple[Value, Value], _Normalized]) -> None:
        given = arguments_of(node)
        image = given["input"]
        with self.rewrite(graph, "norm", node) as edit:
            sums = _Sums(edit, image)
            about = sums.mean(image)
            near = sums.call("sub.Tensor", image, about)
            rest = sums.mean(near)
            mean, centered = sums.call("add.Tensor", about, rest), sums.call("sub.Tensor", near, rest)
            variance = sums.mean(sums.call("mul.Tensor", centered, centered))
            deviation = sums.call("rsqrt.default", sums.call("add.Tensor", variance, given["eps"]))
            normalized = sums.call("mul.Tensor", centered, deviation)
            result = normalized
            if given["weight"] is not None:
                result = sums.call("mul.Tensor", result, sums.of_image(given["weight"]))
            if given["bias"] is not None:
                result = sums.call("add.Tensor", result, sums.of_image(given["bias"]))
            made = [result, sums.of_channels(mean), sums.of_channels(deviation)]
            if "running_mean" in given:
                unbiased = sums.count / max(sums.count - 1, 1)
                for kept, now, factor in (("running_mean", mean, 1.0), ("running_var", variance, unbiased)):
                    made.append(sums.moved(given[kept], sums.of_channels(now), given["momentum"], factor))
            for old, new in zip(node.outputs, made, strict=True):
                edit.replace(old, in_strides_of(edit, new, old))
            norms[image, made[1]] = _Normalized(normalized, deviation)

    def _gradient(self, graph: Graph, node: OpNode, norm: _Normalized) -> None:
        given = arguments_of(node)
        grad = given["grad_out"]
        with self.rewrite(graph, "gradient", node) as edit:
            sums = _Sums(edit, grad)
            of_bias = sums.sum(grad)
            of_weight = sums.sum(sums.call("mul.Tensor", grad, norm.normalized))
            of_input, *others = node.outputs
            if of_input.use_count:
                scale = norm.inverse_deviation
                if given["weight"] is not None:
                    scale = sums.call("mul.Tensor", scale, sums.of_image(given["weight"]))
                along = sums.call("mul.Tensor", norm.normalized, sums.by_count(of_weight))
                rest = sums.call("sub.Tensor", sums.call("sub.Tensor", grad, along), sums.by_count(of_bias))
                made = sums.call("mul.Tensor", rest, scale)
                edit.replace(of_input, in_strides_of(edit, made, of_input))
            for old, new in zip(others, (of_weight, of_bias), strict=True):
                if old.use_count:
                    edit.replace(old, sums.of_channels(new))


class _Sums:
    """The nodes of one rewrite: sums and products of images, [batch, channels, ...].

    Args:
        edit: The rewrite.
        image: One of the images.
    """

    def __init__(self, edit: Edit, image: Value) -> None:
        self._edit = edit
        self._type: TensorType = image.tensor_type
        self.count = math.prod(self._type.sizes) // self._type.sizes[1]

    def call(self, op: str, *args: Any) -> Value:
        return self._edit.call(f"aten.{op}", *args)

    def sum(self, image: Value) -> Value:
        """Return the sum of each channel, with the rank of an image."""
        dims = [dim for dim in range(self._type.rank) if dim != 1]
        return self._edit.call("aten.sum.dim_IntList", image, dims, True)

    def by_count(self, value: Value) -> Value:
        return self.call("mul.Tensor", value, 1 / self.count)

    def mean(self, image: Value) -> Value:
        return self.by_count(self.sum(image))

    def of_image(self, vector: Value) -> Value:
        """Return a vector of channels with the rank of an image."""
        return self.call("view.default", vector, [1, -1, *[1] * (self._type.rank - 2)])

    def of_channels(self, value: Value) -> Value:
        """Return what has the rank of an image as a vector of channels."""
        return self.call("view.default", value, [-1])

    def moved(self, running: Value, now: Value, momentum: float, factor: float) -> Value:
        """Return a running statistic after a batch: ``(1 - momentum) * running + momentum * factor * now``."""
        kept = self.call("mul.Tensor", running, 1 - momentum)
        return self.call("add.Tensor", kept, self.call("mul.Tensor", now, momentum * factor))
