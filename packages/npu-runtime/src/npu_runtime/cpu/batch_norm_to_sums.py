"""Batch norms in training mode, and their gradients, as sums and products of images."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from npu_ir import Graph, OpNode, TensorType, Value
from npu_passes import Pass, within
from npu_passes.core.edit import Edit
from npu_passes.rewriting.arguments import arguments_of
from npu_passes.rewriting.value_replacement import match_strides

_FORWARD = ("aten._native_batch_norm_legit_functional.default", "aten._native_batch_norm_legit.no_stats")
_BACKWARD = "aten.native_batch_norm_backward.default"


@dataclass(frozen=True, slots=True)
class _Norm:
    """Values of a norm that its gradient needs; all but ``near`` are per channel, [1, channels, 1, ...].

    Attributes:
        near: The input minus its mean, with the rounding error of the mean.
        rest: The mean of ``near``, which is that rounding error.
        inverse: The reciprocal of the standard deviation.
        scale: ``inverse`` times the weight.
    """

    near: Value
    rest: Value
    inverse: Value
    scale: Value


class BatchNormToSums(Pass):
    """Compute batch norms of training steps by sums and products, where PyTorch is slower.

    1. The mean is a sum divided by the count ``n``, and the variance is the mean of the squared differences
       from it. The mean of these differences, which is 0 except for rounding, corrects everything that
       follows, so channels with a large mean and a small variance lose no digits.
    2. The gradient of such a norm: ``(g - sum(g) / n - y * sum(g * y) / n) * weight / deviation`` with the
       normalized ``y`` and the gradient ``g`` (Ioffe and Szegedy, 2015, section 3). The differences are
       saved for it in place of the input, and only per-channel vectors are normalized.

    One thread of an AMD EPYC (Zen 4, AVX-512), torch 2.13, 32 x 16 x 32 x 32, us, in contiguous memory and
    in channels-last: forward 991 and 422, by sums 301 and 409; backward 187 and 385, by sums 323 and 409.
    PyTorch sums in float64 in contiguous memory, and sequentially in float32 in channels-last, with
    relative errors of 1e-7 and 4e-6; sum ops add pairwise in float32, with 2e-7. So convolutions can be in
    channels-last without a loss of accuracy in the norms.

    Attributes:
        min_elements: Number of elements from which an input is worth the additional calls.
    """

    name = "batch-norm-to-sums"
    numerics = within(1e-5)
    before = ("channels-last",)

    min_elements: int = 16384

    def run(self, graph: Graph) -> bool:
        norms: dict[tuple[Value, Value], _Norm] = {}
        for node in graph.body:
            if node.op_type in _FORWARD:
                problem = self._problem(node)
                if problem is None:
                    self._norm(graph, node, norms)
                else:
                    self.refuse(node, problem, "norm")
            elif node.op_type == _BACKWARD:
                arguments = arguments_of(node)
                norm = norms.get((arguments["input"], arguments["save_mean"]))
                if norm is not None:
                    self._gradient(graph, node, norm)
        return bool(norms)

    def _problem(self, node: OpNode) -> str | None:
        """Return the reason why a norm stays; None if it is computed by sums."""
        arguments = arguments_of(node)
        type = node.inputs[0].tensor_type
        if not arguments["training"]:
            return "it reads running statistics"
        if type.symbols or any(value.tensor_type.dtype is not torch.float32 for value in node.inputs):
            return f"it is of {', '.join(str(value.type) for value in node.inputs)}"
        elements = math.prod(type.static_shape)
        if elements < self.min_elements:
            return f"{elements} elements are too few to pay for more calls"
        return None

    def _norm(self, graph: Graph, node: OpNode, norms: dict[tuple[Value, Value], _Norm]) -> None:
        arguments = arguments_of(node)
        image = arguments["input"]
        with self.rewrite(graph, "norm", node) as edit:
            sums = _Sums(edit, image)
            about = sums.mean(image)
            near = sums.call("sub", image, about)
            rest = sums.mean(near)
            # The corrected two-pass algorithm: mean(d^2) - mean(d)^2 for differences d from the rounded mean
            # (Chan, Golub and LeVeque, "Algorithms for Computing the Sample Variance", 1983).
            variance = sums.call("sub", sums.mean(sums.call("mul", near, near)), sums.call("mul", rest, rest))
            inverse = edit.call("aten.rsqrt.default", sums.call("add", variance, arguments["eps"]))
            scale = (
                inverse
                if arguments["weight"] is None
                else sums.call("mul", inverse, sums.to_image_rank(arguments["weight"]))
            )
            shift = sums.call("mul", rest, scale)
            if arguments["bias"] is not None:
                shift = sums.call("sub", shift, sums.to_image_rank(arguments["bias"]))
            result = sums.call("sub", sums.call("mul", near, scale), shift)
            mean = sums.call("add", about, rest)
            # In the order of the op: the saved mean and inverse deviation follow the result.
            outputs = [result, sums.to_vector(mean), sums.to_vector(inverse)]
            if "running_mean" in arguments:
                unbiased = sums.count / max(sums.count - 1, 1)  # running_var is the unbiased variance
                for running, batch, factor in (
                    ("running_mean", mean, 1.0),
                    ("running_var", variance, unbiased),
                ):
                    outputs.append(
                        sums.update_running(
                            arguments[running], sums.to_vector(batch), arguments["momentum"], factor
                        )
                    )
            for old, new in zip(node.outputs, outputs, strict=True):
                edit.replace(old, match_strides(edit, new, old))
            norms[image, outputs[1]] = _Norm(near, rest, inverse, scale)

    def _gradient(self, graph: Graph, node: OpNode, norm: _Norm) -> None:
        grad = arguments_of(node)["grad_out"]
        with self.rewrite(graph, "gradient", node) as edit:
            sums = _Sums(edit, grad)
            of_bias = sums.sum(grad)
            # sum(g * (near - rest)) without another image-sized tensor.
            product = sums.sum(sums.call("mul", grad, norm.near))
            product = sums.call("sub", product, sums.call("mul", of_bias, norm.rest))
            of_weight = sums.call("mul", product, norm.inverse)
            of_input, *others = node.outputs
            if of_input.use_count:
                along = sums.call("mul", sums.divide_by_count(of_weight), norm.inverse)
                offset = sums.call("sub", sums.divide_by_count(of_bias), sums.call("mul", norm.rest, along))
                left = sums.call("sub", grad, sums.call("mul", norm.near, along))
                result = sums.call("mul", sums.call("sub", left, offset), norm.scale)
                edit.replace(of_input, match_strides(edit, result, of_input))
            for old, new in zip(others, (of_weight, of_bias), strict=True):
                if old.use_count:
                    edit.replace(old, sums.to_vector(new))


class _Sums:
    """Builder of the nodes of one rewrite: sums and products of images, [batch, channels, ...]."""

    def __init__(self, edit: Edit, image: Value) -> None:
        self._edit = edit
        self._type: TensorType = image.tensor_type
        self.count = math.prod(self._type.static_shape) // self._type.static_shape[1]

    def call(self, op: str, left: Value, right: Value | float) -> Value:
        return self._edit.call(f"aten.{op}.Tensor", left, right)

    def sum(self, image: Value) -> Value:
        """Return the sum over each channel, with the rank of an image."""
        dims = [dim for dim in range(self._type.rank) if dim != 1]
        return self._edit.call("aten.sum.dim_IntList", image, dims, True)

    def divide_by_count(self, value: Value) -> Value:
        return self.call("mul", value, 1 / self.count)

    def mean(self, image: Value) -> Value:
        return self.divide_by_count(self.sum(image))

    def to_image_rank(self, vector: Value) -> Value:
        """Return a vector of channels, reshaped to the rank of an image."""
        return self._edit.call("aten.view.default", vector, [1, -1, *[1] * (self._type.rank - 2)])

    def to_vector(self, value: Value) -> Value:
        """Return a per-channel value with the rank of an image, reshaped to a vector."""
        return self._edit.call("aten.view.default", value, [-1])

    def update_running(self, running: Value, now: Value, momentum: float, factor: float) -> Value:
        """Return the running statistic ``(1 - momentum) * running + momentum * factor * now``."""
        decayed = self.call("mul", running, 1 - momentum)
        return self.call("add", decayed, self.call("mul", now, momentum * factor))
