"""The calls in an FX module that PyTorch traced, as plain data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Node

from npu_ir.core.types import Type
from npu_ir.ops.schema import op_type_of
from npu_passes import _torch
from npu_passes.errors import PassError

_GETITEM = "<built-in function getitem>"
# They return what they get: a trace has them for autograd and for constants.
_IDENTITIES = (
    *("aten.alias.default", "aten.detach.default", "aten.detach_.default"),
    *("aten.lift_fresh.default", "aten.lift_fresh_copy.default"),
)


@dataclass(frozen=True, slots=True)
class Ref:
    """A value in a recording, by number."""

    index: int


@dataclass(frozen=True, slots=True)
class Step:
    """One call.

    Attributes:
        op_type: What is called.
        args: Plain data, `Ref` for values, tuples of both.
        kwargs: Likewise, by name.
        types: Of the outputs, flat.
        first: The number of the first output; the others follow.
    """

    op_type: str
    args: tuple[Any, ...]
    kwargs: tuple[tuple[str, Any], ...]
    types: tuple[Type, ...]
    first: int

    @property
    def reads(self) -> set[int]:
        """The numbers of the values it reads."""
        return {leaf.index for leaf in _leaves((self.args, self.kwargs)) if isinstance(leaf, Ref)}


@dataclass(frozen=True, slots=True)
class Recording:
    """The calls in a module, and what it returns, flat."""

    steps: tuple[Step, ...]
    results: tuple[Any, ...]
    result_types: tuple[Type, ...]
    constants: tuple[torch.Tensor, ...]


def recorded(module: GraphModule, type_of: Callable[[Any], Type]) -> Recording:
    """Return the calls in ``module``.

    Args:
        module: From a trace: its values are numbered as its inputs, its constants, then the outputs of calls.
        type_of: Returns the type of a FakeTensor or a number.

    Raises:
        PassError: A call is of no op, a constant has no data, or the module returns plain data.
    """
    module.graph.eliminate_dead_code()
    nodes = list(module.graph.nodes)
    arguments = [node for node in nodes if node.op == "placeholder"]
    held = [node for node in nodes if node.op == "get_attr"]
    values: dict[Node, Any] = {node: Ref(index) for index, node in enumerate((*arguments, *held))}
    count = len(values)
    steps: list[Step] = []
    for node in nodes:
        if node.op != "call_function":
            continue
        if str(node.target) == _GETITEM:
            container, index = node.args
            values[node] = values[container][index]
        elif str(node.target) in _IDENTITIES:
            values[node] = values[node.args[0]]
        else:
            step, values[node] = _step(node, values, count, type_of)
            count += len(step.types)
            steps.append(step)
    (output,) = (node for node in nodes if node.op == "output")
    results = tuple(_leaves(_referring(output.args[0], values)))
    if not all(isinstance(result, Ref) or result is None for result in results):
        raise PassError("it returns plain data")
    types = tuple(type_of(_value(leaf)) for leaf in _leaves(output.args[0]))
    return Recording(tuple(steps), results, types, tuple(_data(node, module) for node in held))


def _step(
    node: Node, values: dict[Node, Any], first: int, type_of: Callable[[Any], Type]
) -> tuple[Step, Any]:
    """Return one call, and the structure of what it returns, with a `Ref` for each output."""
    target: Any = node.target
    op_type = op_type_of(target)
    if op_type.startswith("higher_order."):
        raise PassError(f"it consists of {op_type}, which has regions")
    found = node.meta.get("val")
    has_results = not (isinstance(target, _torch.OpOverload) and not target._schema.returns)
    leaves = list(_leaves(found)) if has_results else []
    numbers = iter(range(first, first + len(leaves)))
    args = _referring(node.args, values)
    kwargs = tuple((name, _referring(item, values)) for name, item in node.kwargs.items())
    step = Step(op_type, args, kwargs, tuple(map(type_of, leaves)), first)
    return step, _numbered(found, numbers) if has_results else None


def _numbered(value: Any, numbers: Iterator[int]) -> Any:
    if isinstance(value, (list, tuple)):
        return [_numbered(part, numbers) for part in value]
    return Ref(next(numbers))


def _referring(item: Any, values: dict[Node, Any]) -> Any:
    """Return arguments with a `Ref` for each node, and tuples for lists."""
    if isinstance(item, Node):
        return values[item]
    return tuple(_referring(part, values) for part in item) if isinstance(item, (list, tuple)) else item


def _leaves(item: Any) -> Iterator[Any]:
    if isinstance(item, (list, tuple)):
        for part in item:
            yield from _leaves(part)
    else:
        yield item


def _value(leaf: Any) -> Any:
    return leaf.meta.get("val") if isinstance(leaf, Node) else leaf


def _data(node: Node, module: GraphModule) -> torch.Tensor:
    held = getattr(module, str(node.target))
    data = getattr(held, "constant", None) if hasattr(held, "fake_mode") else held
    if not isinstance(data, torch.Tensor):
        raise PassError("it holds a tensor without data")
    return data
