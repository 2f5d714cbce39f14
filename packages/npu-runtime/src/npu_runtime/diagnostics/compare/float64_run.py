"""A reference run of a graph in float64, with and without simulated rounding.

The error of a side is its distance from the float64 run. The error that rounding alone causes is estimated in
the manner of stochastic arithmetic (Vignes 1993): a second run in float64 perturbs each value at random by
half a unit in the last place of the dtype that the graph declares, and its distance from the exact run is
measured.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from npu_ir import Graph, NpuError, OpNode, TensorType, Value
from npu_ir.core.isolation import default_dtype, isolated_torch_state
from npu_ir.core.structure import unflatten
from npu_ir.ops.effects import is_random, is_view
from npu_ir.ops.execution import adapt_regions, binding_of, location_of, run_op
from npu_ir.ops.schema import find_op
from npu_ir.plugins import plugin_manager
from npu_runtime.diagnostics.compare.metrics import is_numeric


def promote(item: Any) -> Any:
    """Return a floating-point tensor as float64, a complex one as complex128, anything else unchanged."""
    if not isinstance(item, torch.Tensor):
        return item
    if item.is_quantized or not is_numeric(item.dtype):
        return item
    if item.is_complex():
        return item.to(torch.complex128)
    return item.to(torch.float64) if item.is_floating_point() else item


def promote_dtypes(item: Any) -> Any:
    """Return an argument of an op with its dtypes promoted as `promote` does tensors."""
    if isinstance(item, list):
        return [promote_dtypes(part) for part in item]
    if not isinstance(item, torch.dtype):
        return item
    if item.is_complex:
        return torch.complex128
    return torch.float64 if item.is_floating_point and is_numeric(item) else item


# Ops that reinterpret the bits of floats, which differ in float64.
_BIT_OPS = ("aten.view.dtype", "aten.view_copy.dtype")
# Discontinuous ops with floating-point results: rounding of an input can change these by a whole step.
_DISCONTINUOUS_OPS = frozenset(
    {"ceil", "floor", "floor_divide", "fmod", "fix", "frac", "heaviside", "remainder", "round", "sgn", "sign"}
    | {"trunc", "fake_quantize_per_tensor_affine", "fake_quantize_per_channel_affine"}
)

_FAILURES = (ArithmeticError, AssertionError, LookupError, NpuError, RuntimeError, TypeError, ValueError)


@dataclass(frozen=True, slots=True)
class Missing:
    """A placeholder of a value that could not be computed in float64; the reason names the first node."""

    reason: str


def is_random_or_discontinuous(node: OpNode) -> bool:
    """Return whether the outputs of a node are random, or discontinuous: integers, booleans, steps.

    The float64 run takes these from a side of the comparison: after another decision, such as another argmax
    or dropout mask, it would follow another computation, and would not be a reference.
    """
    name = node.op_type.split(".")[1] if node.op_type.count(".") == 2 else ""
    return name in _DISCONTINUOUS_OPS or not all(map(_is_continuous, node.outputs)) or is_random(node)


def _is_continuous(value: Value) -> bool:
    if not isinstance(value.type, TensorType):
        return value.type.kind == "float"
    return value.type.dtype.is_floating_point or value.type.dtype.is_complex


class Float64Run:
    """The values of a graph in float64, computed lazily in the order of its nodes.

    It calls the operators of PyTorch, even where another executor is registered for an op: that executor may
    be the error looked for. A value that cannot be computed is `Missing`, and so are all that depend on it.

    Args:
        graph: The graph.
        bound: Its weights, constants and inputs.
        wanted: Names of the values that `take` will return, each once.
        device: The device of tensors that the graph creates on ``meta``.
        given: Values that a side of the comparison computed, by name: used for nodes that
            `is_random_or_discontinuous` is true of.
        rounding: If given, each value is perturbed by half a unit in the last place of its declared dtype, up
            or down at random.
    """

    def __init__(
        self,
        graph: Graph,
        bound: Mapping[Value, Any],
        wanted: Collection[str],
        device: torch.device,
        given: Mapping[str, Any] | None = None,
        rounding: torch.Generator | None = None,
    ) -> None:
        self.missing: dict[str, str] = {}
        self._wanted = set(wanted) | {value.name for value in graph.returned_values}
        self._device = device
        self._side_values = {} if given is None else given
        self._rounding = rounding
        self._values: dict[Value, Any] = {value: promote(item) for value, item in bound.items()}
        self._remaining = {value: value.use_count for value in graph.values}
        self._pending = iter(graph.nodes)

    def take(self, value: Value) -> Any:
        """Return a wanted value, or `Missing`, and release it unless the graph still needs it."""
        while value not in self._values:
            node = next(self._pending, None)
            if node is None:
                return Missing(f"%{value.name} was not kept")
            self._run_node(node)
        item = self._values[value]
        if not value.is_output:
            self._wanted.discard(value.name)
            self._release([value])
        return item

    def run_remaining(self, observe: Callable[[OpNode, list[Any]], None] | None) -> None:
        """Run the remaining nodes, and show each with its outputs to an observer."""
        for node in self._pending:
            outputs = self._run_node(node)
            if observe is not None:
                observe(node, outputs)

    def _run_node(self, node: OpNode) -> list[Any]:
        inputs = [self._values[value] for value in node.inputs]
        outputs = self._compute_outputs(node, inputs)
        self._values.update(zip(node.outputs, outputs, strict=True))
        for value in node.inputs:
            self._remaining[value] -= 1
        self._release([*node.inputs, *node.outputs])
        return outputs

    def _compute_outputs(self, node: OpNode, inputs: Sequence[Any]) -> list[Any]:
        lost = next((item for item in inputs if isinstance(item, Missing)), None)
        if lost is None:
            outputs = _run_promoted(node, inputs, self._device)
        else:
            outputs = [lost] * len(node.outputs)
        if is_random_or_discontinuous(node):  # a value that a side has computed also replaces a missing one
            outputs = [
                promote(self._side_values.get(value.name, item))
                for value, item in zip(node.outputs, outputs, strict=True)
            ]
        for value, item in zip(node.outputs, outputs, strict=True):
            if isinstance(item, Missing):
                self.missing[value.name] = item.reason
        if self._rounding is None or is_view(node):  # a view computes nothing, so it rounds nothing
            return outputs
        return [
            _perturb(value, item, self._rounding) for value, item in zip(node.outputs, outputs, strict=True)
        ]

    def _release(self, values: Sequence[Value]) -> None:
        """Release values that no remaining node reads and no caller will take."""
        for value in values:
            is_read = self._remaining[value] > 0 or value.is_output
            if not is_read and value.name not in self._wanted:
                self._values.pop(value, None)


def _perturb(value: Value, item: Any, generator: torch.Generator) -> Any:
    """Return a value with each element moved by half a unit in the last place of its dtype, up or down.

    The relative unit of 1.0 is used for every element: at most twice the actual one.
    """
    if (
        not isinstance(value.type, TensorType)
        or not isinstance(item, torch.Tensor)
        or not _is_continuous(value)
    ):
        return item
    if item.layout is not torch.strided or item.is_quantized:
        return item
    half_unit = torch.finfo(value.type.dtype).eps / 2
    signs = torch.randint(0, 2, item.shape, generator=generator).to(item.device) * 2 - 1
    return item * (1 + half_unit * signs)


def _run_promoted(node: OpNode, inputs: Sequence[Any], device: torch.device) -> list[Any]:
    """Return the outputs of a node on promoted inputs."""
    reason = _missing_reason(node)
    if reason is not None:
        return [Missing(reason)] * len(node.outputs)
    try:
        with isolated_torch_state(device), default_dtype(torch.float64):
            results = _call_op(node, inputs, device)
    except _FAILURES as error:
        text = str(error).splitlines()[0][:120] if str(error) else repr(error)
        results = [Missing(f"{location_of(node)} fails in float64: {text}")] * len(node.outputs)
    if results == [None] and not node.outputs:
        return []
    if len(results) != len(node.outputs):
        return [Missing(f"{location_of(node)} has another number of results in float64")] * len(node.outputs)
    return [promote(item) for item in results]


def _missing_reason(node: OpNode) -> str | None:
    if is_random(node):
        return f"{location_of(node)} draws random numbers"
    if node.op_type in _BIT_OPS:
        return f"{location_of(node)} reads the bits of floats"
    if find_op(node.op_type) is None and node.op_type not in plugin_manager.registry().table("execution"):
        return f"{location_of(node)}: there is no operator {node.op_type}"
    return None


def _call_op(node: OpNode, inputs: Sequence[Any], device: torch.device) -> list[Any]:
    regions = {name: partial(_run_region, region, device) for name, region in node.regions.items()}
    op = find_op(node.op_type)
    if op is None:
        attrs = {name: promote_dtypes(item) for name, item in node.attrs.items()}
        entry = plugin_manager.registry().table("execution")[node.op_type]
        return list(entry.function(inputs, attrs, *([regions] if regions else [])))
    binding = binding_of(node, op)
    wide = replace(
        binding,
        positional=tuple(map(promote_dtypes, binding.positional)),
        keyword={name: promote_dtypes(item) for name, item in binding.keyword.items()},
    )
    return run_op(op, wide, [*inputs, *adapt_regions(node, regions)], device)


def _run_region(region: Graph, device: torch.device, *args: Any) -> Any:
    constants = {
        value: value.argument.data
        for value in region.arguments
        if value.argument is not None and value.argument.data is not None
    }
    leaves = iter(args)
    inputs = {leaf: next(leaves) for leaf in region.call[1] if isinstance(leaf, Value)}
    run = Float64Run(region, {**constants, **inputs}, (), device)
    run.run_remaining(None)
    results = [run.take(leaf) if isinstance(leaf, Value) else leaf for leaf in region.results[1]]
    lost = next(_missing_items(results), None)
    if lost is not None:
        raise RuntimeError(lost.reason)
    return unflatten(region.results[0], results)


def _missing_items(items: Sequence[Any]) -> Iterator[Missing]:
    return (item for item in items if isinstance(item, Missing))
