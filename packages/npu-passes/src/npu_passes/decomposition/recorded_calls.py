"""Recorded calls of an FX module that PyTorch traced, as plain data, and their insertion in a graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import GraphModule, Node

from npu_ir import OpNode, Value
from npu_ir.core.types import Type
from npu_ir.ops.effects import is_view
from npu_ir.ops.execution import flatten_results
from npu_ir.ops.schema import op_type_of
from npu_passes import _torch
from npu_passes.core.edit import Edit
from npu_passes.errors import PassError
from npu_passes.rewriting.aliasing import is_visible_outside
from npu_passes.rewriting.value_replacement import convert_strides

_GETITEM = "<built-in function getitem>"
# Ops that return their input, left in a trace by autograd and by constants.
_IDENTITIES = (
    "aten.alias.default",
    "aten.detach.default",
    "aten.detach_.default",
    "aten.lift_fresh.default",
    "aten.lift_fresh_copy.default",
)


@dataclass(frozen=True, slots=True)
class Ref:
    """Reference to a value of a recording, by number."""

    index: int


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """One recorded call."""

    op_type: str
    args: tuple[Any, ...]  # plain data, `Ref` for values, and tuples of both
    kwargs: tuple[tuple[str, Any], ...]  # likewise, by name
    types: tuple[Type, ...]  # types of the outputs, flat
    first: int  # the number of the first output; the others follow

    @property
    def reads(self) -> set[int]:
        """The numbers of the values that the call reads."""
        return {leaf.index for leaf in flatten_results((self.args, self.kwargs)) if isinstance(leaf, Ref)}


@dataclass(frozen=True, slots=True)
class Recording:
    """The calls of a module, in order.

    Values are numbered in the order: inputs, constants, outputs of calls.
    """

    calls: tuple[RecordedCall, ...]
    results: tuple[Any, ...]  # flat; each is a `Ref`, or None
    types: tuple[Type, ...]  # the types of the results
    constants: tuple[torch.Tensor, ...] = field(compare=False)  # tensors that the calls read
    inputs: int


def record_calls(module: GraphModule, type_of: Callable[[Any], Type]) -> Recording:
    """Return the calls in ``module``, the result of a trace; ``type_of`` returns the types of fake values.

    Raises:
        PassError: A call has no op type or has regions, a constant has no data, or the module returns
            plain data.
    """
    module.graph.eliminate_dead_code()
    nodes = list(module.graph.nodes)
    arguments = [node for node in nodes if node.op == "placeholder"]
    held = [node for node in nodes if node.op == "get_attr"]
    values: dict[Node, Any] = {node: Ref(index) for index, node in enumerate((*arguments, *held))}
    count = len(values)
    steps: list[RecordedCall] = []
    for node in nodes:
        if node.op != "call_function":
            continue
        if str(node.target) == _GETITEM:
            container, index = node.args
            values[node] = values[container][index]
        elif str(node.target) in _IDENTITIES:
            values[node] = values[node.args[0]]
        else:
            step, values[node] = _record_call(node, values, count, type_of)
            count += len(step.types)
            steps.append(step)
    (output,) = (node for node in nodes if node.op == "output")
    results = tuple(flatten_results(_to_refs(output.args[0], values)))
    if not all(isinstance(result, Ref) or result is None for result in results):
        raise PassError("it returns plain data")
    leaves = flatten_results(output.args[0])
    types = tuple(type_of(leaf.meta.get("val") if isinstance(leaf, Node) else leaf) for leaf in leaves)
    constants = tuple(_constant_data(node, module) for node in held)
    return Recording(tuple(steps), results, types, constants, len(arguments))


def _record_call(
    node: Node, values: dict[Node, Any], first: int, type_of: Callable[[Any], Type]
) -> tuple[RecordedCall, Any]:
    """Return one call, and the structure of its result with a `Ref` for each output."""
    target: Any = node.target
    op_type = op_type_of(target)
    if op_type.startswith("higher_order."):
        raise PassError(f"it consists of {op_type}, which has regions")
    value = node.meta.get("val")
    has_results = not (isinstance(target, _torch.OpOverload) and not target._schema.returns)
    leaves = flatten_results(value) if has_results else []
    numbers = iter(range(first, first + len(leaves)))
    args = _to_refs(node.args, values)
    kwargs = tuple((name, _to_refs(item, values)) for name, item in node.kwargs.items())
    step = RecordedCall(op_type, args, kwargs, tuple(map(type_of, leaves)), first)
    return step, _number_outputs(value, numbers) if has_results else None


def _number_outputs(value: Any, numbers: Iterator[int]) -> Any:
    if isinstance(value, (list, tuple)):
        return [_number_outputs(part, numbers) for part in value]
    return Ref(next(numbers))


def _to_refs(item: Any, values: dict[Node, Any]) -> Any:
    """Return arguments with nodes replaced by their `Ref`, and lists by tuples."""
    if isinstance(item, Node):
        return values[item]
    return tuple(_to_refs(part, values) for part in item) if isinstance(item, (list, tuple)) else item


def _constant_data(node: Node, module: GraphModule) -> torch.Tensor:
    held = getattr(module, str(node.target))
    # A constant made while tracing is a fake tensor, which keeps the data in `constant` (torch 2.13).
    data = getattr(held, "constant", None) if hasattr(held, "fake_mode") else held
    if not isinstance(data, torch.Tensor):
        raise PassError("it holds a tensor without data")
    return data


def inline(edit: Edit, node: OpNode, found: Recording) -> None:
    """Replace ``node`` by the calls of its expansion that its used outputs depend on."""
    added = [_add_constant(edit, data) for data in found.constants]
    values_before = (*node.inputs, *added)
    values: dict[int, Value] = dict(enumerate(values_before))
    wanted = [result for result, output in zip(found.results, node.outputs, strict=True) if output.uses]
    for step in _select_needed(found.calls, wanted):
        args, kwargs = _substitute_refs(step.args, values), _substitute_refs(dict(step.kwargs), values)
        outputs = edit.calls(step.op_type, *args, types=step.types, **kwargs)
        values.update(enumerate(outputs, start=step.first))
    for output, result in zip(node.outputs, found.results, strict=True):
        if output.uses:
            value = convert_strides(edit, values[result.index], output.type)
            if value in values_before and not is_view(node) and is_visible_outside(output):
                # The op returned a new tensor, which callers may write into: it must not alias an input.
                value = edit.call("aten.clone.default", value)
            edit.replace(output, value)
    edit.erase(node)


def _select_needed(steps: Sequence[RecordedCall], results: Sequence[Any]) -> list[RecordedCall]:
    """Return the calls that results depend on, and those without outputs, which are assertions."""
    wanted = {result.index for result in results if isinstance(result, Ref)}
    needed = []
    for step in reversed(steps):
        outputs = range(step.first, step.first + len(step.types))
        if not step.types or not wanted.isdisjoint(outputs):
            needed.append(step)
            wanted.update(step.reads)
    return needed[::-1]


def _substitute_refs(item: Any, values: Mapping[int, Value]) -> Any:
    if isinstance(item, Ref):
        return values[item.index]
    if isinstance(item, (list, tuple)):
        return [_substitute_refs(part, values) for part in item]
    if isinstance(item, dict):
        return {name: _substitute_refs(part, values) for name, part in item.items()}
    return item


def _add_constant(edit: Edit, data: torch.Tensor) -> Value:
    taken = edit.graph.constants
    target = next(name for number in range(len(taken) + 1) if (name := f"traced_{number}") not in taken)
    return edit.graph.add_constant(target, data)
