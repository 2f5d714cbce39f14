"""Rules of pools, interpolation, and the gradients of both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from npu_cuda.backend.op_builder import AXES, Lowered, OpBuilder, Rule, by_axis
from npu_cuda.backend.reduction_rules import lower_adaptive_average
from npu_cuda.backend.tensor_views import tensor_type
from npu_ir import OpNode

_WINDOW, _ADAPTIVE, _NEAREST, _NEAREST_EXACT, _LINEAR, _LINEAR_ALIGNED = range(6)
# Argument of a node to field of the attributes; a stride that is not given is the kernel.
_LISTS = {"kernel_size": "kernel", "stride": "stride", "padding": "padding", "dilation": "dilation"}


@dataclass(frozen=True, slots=True)
class PoolRule:
    """The native op of a node over some axes.

    Attributes:
        kind: Its name in the registry.
        axes: The number of spatial axes.
        mode: How elements are chosen: see ``csrc/ops/pool/axis.h``.
        transposed: Whether it is the gradient of a `Resample`.
    """

    kind: str
    axes: int
    mode: int = _WINDOW
    transposed: bool = False

    def __call__(self, node: OpNode) -> Lowered:
        build = OpBuilder(node, "grad_output", "self", "indices")
        if self.mode == _NEAREST and not self.transposed and self._depends_on_layout(node):
            return "PyTorch reads other elements where another scale than that of the sizes is given"
        if self.mode in (_NEAREST, _NEAREST_EXACT, _LINEAR) and _is_empty(node):
            return "PyTorch raises an error for an axis of no elements"
        numbers: dict[str, float] = {"axes": self.axes, "mode": self.mode, **self._windows(node)}
        if self.kind == "Resample":
            numbers |= self._resampling(node)
        is_gradient = self.kind == "MaxPoolBwd"
        inputs = build.present("grad_output", "indices") if is_gradient else node.inputs[:1]
        return build.add(self.kind, inputs, node.outputs, **numbers)

    def _windows(self, node: OpNode) -> Mapping[str, float]:
        if self.mode != _WINDOW:
            return {}
        lists: dict[str, Any] = {}
        for argument, field in _LISTS.items():
            given: Any = node.attrs.get(argument)
            numbers = [given] if isinstance(given, int) else given
            if numbers:
                lists[field] = numbers * self.axes if len(numbers) == 1 else numbers
        lists.setdefault("stride", lists["kernel"])
        return by_axis(lists)

    def _resampling(self, node: OpNode) -> Mapping[str, float]:
        numbers: dict[str, float] = {"transposed": int(self.transposed)}
        numbers["counts_padding"] = int(node.attrs.get("count_include_pad") is not False)
        divisor: Any = node.attrs.get("divisor_override") or 0
        numbers["divisor"] = divisor
        if self.mode == _LINEAR and node.attrs["align_corners"]:
            numbers["mode"] = _LINEAR_ALIGNED
        ratios = [1.0 / scale if scale and scale > 0 else 0.0 for scale in self._scales(node)]
        return {**numbers, **by_axis({"ratio": ratios})}

    def _scales(self, node: OpNode) -> Sequence[Any]:
        names = ["scales"] if self.axes == 1 else [f"scales_{axis}" for axis in AXES[-self.axes :]]
        given: Any = node.attrs.get("scale_factors")
        return given or [node.attrs.get(name) for name in names]

    def _depends_on_layout(self, node: OpNode) -> bool:
        """Return whether ATen looks at a given scale in one layout of memory and not in the other.

        Where sizes are equal or doubled, its loop over channels-last tensors does not.
        """
        sizes, results = (tensor_type(part[0]).static_shape[2:] for part in (node.inputs, node.outputs))
        axes = zip(sizes, results, self._scales(node), strict=True)
        return any(
            scale and result in (size, 2 * size) and scale * size != result for size, result, scale in axes
        )


def _is_empty(node: OpNode) -> bool:
    values = (node.inputs[0], node.outputs[0])
    return any(0 in tensor_type(value).static_shape[2:] for value in values)


def _pools(axes: int) -> Mapping[str, tuple[Rule, ...]]:
    return {
        f"max_pool{axes}d": (PoolRule("MaxPool", axes),),
        f"max_pool{axes}d_with_indices": (PoolRule("MaxPool", axes),),
        f"adaptive_max_pool{axes}d": (PoolRule("MaxPool", axes, _ADAPTIVE),),
        f"avg_pool{axes}d": (PoolRule("Resample", axes),),
        f"adaptive_avg_pool{axes}d": (lower_adaptive_average, PoolRule("Resample", axes, _ADAPTIVE)),
    }


def _pool_gradients(axes: int) -> Mapping[str, tuple[Rule, ...]]:
    """Return the rules of gradients of pools over 2 or 3 axes, and of the mean that has one."""
    adaptive = PoolRule("Resample", axes, _ADAPTIVE)
    return {
        f"max_pool{axes}d_with_indices_backward": (PoolRule("MaxPoolBwd", axes),),
        f"adaptive_max_pool{axes}d_backward": (PoolRule("MaxPoolBwd", axes, _ADAPTIVE),),
        f"avg_pool{axes}d_backward": (PoolRule("Resample", axes, transposed=True),),
        f"_adaptive_avg_pool{axes}d": (lower_adaptive_average, adaptive),
        f"_adaptive_avg_pool{axes}d_backward": (replace(adaptive, transposed=True),),
    }


def _interpolations(axes: int) -> Mapping[str, tuple[Rule, ...]]:
    linear = ("linear", "bilinear", "trilinear")[axes - 1]
    modes = {
        f"upsample_nearest{axes}d": _NEAREST,
        f"_upsample_nearest_exact{axes}d": _NEAREST_EXACT,
        f"upsample_{linear}{axes}d": _LINEAR,
    }
    forward = {name: (PoolRule("Resample", axes, mode),) for name, mode in modes.items()}
    backward = {
        f"{name}_backward": (PoolRule("Resample", axes, mode, transposed=True),)
        for name, mode in modes.items()
    }
    return {**forward, **backward}


_RULES = {
    name: rules
    for axes in (1, 2, 3)
    for part in (_pools(axes), _pool_gradients(axes) if axes > 1 else {}, _interpolations(axes))
    for name, rules in part.items()
}

POOL_RULES: Mapping[str, tuple[Rule, ...]] = {
    **{f"aten.{name}.default": rules for name, rules in _RULES.items()},
    **{f"aten.{name}.vec": rules for name, rules in _RULES.items() if "upsample" in name},
}
