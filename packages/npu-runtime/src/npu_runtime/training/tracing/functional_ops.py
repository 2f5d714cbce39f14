"""The functional op of an in-place op, and whether it returns the types of what the in-place op writes."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Node

from npu_ir.capture.writes import fake_results, functional_variants
from npu_ir.ops.schema import schema_of
from npu_runtime._torch.ops import OpOverload


@functools.cache
def functional_op(op: OpOverload) -> OpOverload | None:
    """Return the functional op of an in-place op of ATen that writes one argument; None if there is none."""
    if op.namespace != "aten" or not op._opname.endswith("_") or torch.Tag.inplace_view in op.tags:
        return None
    schema = schema_of(op)
    if [arg.writes for arg in schema.args].count(True) != 1:
        return None
    variants = list(functional_variants(schema))
    named = [item for item in variants if item._overloadname == op._overloadname]
    found = named or variants
    return found[0] if len(found) == 1 else None


def with_defaults(node: Node, op: OpOverload, functional: OpOverload) -> tuple[Any, ...]:
    """Return the positional arguments of a node with the defaults that its functional op does not have."""
    own, others = op._schema.arguments, functional._schema.arguments
    lacking = [
        index
        for index, (arg, other) in enumerate(zip(own, others, strict=True))
        if index >= len(node.args) and arg.has_default_value() and not other.has_default_value()
    ]
    last = lacking[-1] + 1 if lacking else 0
    return (*node.args, *(arg.default_value for arg in own[len(node.args) : last]))


def returns_same_types(
    functional: OpOverload, args: tuple[Any, ...], node: Node, targets: Sequence[Node]
) -> bool:
    """Return whether a functional op returns the types that a node writes: it promotes and broadcasts."""
    expected = list(targets)
    if len(targets) > 1:
        args, kept = _distinct_elements(args)
        expected = [targets[index] for index in kept]
    types = [_type_key(item) for item in fake_results(node, functional, args, node.kwargs)]
    return types == [_type_key(item) for item in expected]


def _distinct_elements(args: Sequence[Any]) -> tuple[tuple[Any, ...], list[int]]:
    """Return lists with one element of each combination of types, and the indices of these elements.

    An op on lists works on one element of each at a time.
    """
    lists = [item for item in args if isinstance(item, (list, tuple))]
    first: dict[Any, int] = {}
    for index, elements in enumerate(zip(*lists, strict=True)):
        first.setdefault(tuple(map(_type_key, elements)), index)
    kept = list(first.values())
    return tuple(
        [item[index] for index in kept] if isinstance(item, (list, tuple)) else item for item in args
    ), kept


def _type_key(item: Any) -> Any:
    """Return dtype, device, shape and strides of a tensor or of a node's; for others the Python type."""
    value = item.meta["val"] if isinstance(item, Node) else item
    if isinstance(value, torch.Tensor):
        return value.dtype, value.device, tuple(value.shape), value.stride()
    return type(value)
