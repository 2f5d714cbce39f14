"""Flat arguments of a call: a fast path for tensors that match the types of the graph exactly."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from npu_ir import ExecutionError, Graph, TensorType, Value
from npu_ir.core.structure import LEAF

# Returns the inputs of the graph in order, or None if the arguments need the full check of `bind_inputs`.
FastPath = Callable[["tuple[Any, ...]", "Mapping[str, Any]"], "tuple[Any, ...] | None"]


def positional_tuple(args: Sequence[Any]) -> tuple[Any, ...]:
    """Return positional arguments as a tuple.

    Raises:
        ExecutionError: They are not a tuple or list; a bare tensor would be split into rows.
    """
    if not isinstance(args, (tuple, list)):
        raise ExecutionError(
            f"the positional arguments are a tuple, not {type(args).__name__}", where="args", fix="pass (x,)"
        )
    return tuple(args)


def make_fast_path(graph: Graph, device: torch.device) -> FastPath | None:
    """Return the fast path for the calls of a graph; None if its arguments do not qualify.

    They qualify if they are flat, distinct strided tensors of fixed sizes, or None, and the graph mutates
    none.
    """
    structure, leaves = graph.call
    args, kwargs = structure.children
    is_flat = all(child.kind == LEAF for child in (*args.children, *kwargs.children))
    values = [leaf for leaf in leaves if isinstance(leaf, Value)]
    is_plain = all(isinstance(leaf, Value) or leaf is None for leaf in leaves) and len(set(values)) == len(
        values
    )
    updated = any(target in graph.updates for target in values)
    if not is_flat or not is_plain or updated or graph.symbols:
        return None
    wanted = [_expected_layout(leaf) for leaf in leaves]
    if any(item is _UNUSUAL for item in wanted):
        return None
    keys = tuple(kwargs.context)
    order = {value: index for index, value in enumerate(leaves) if isinstance(value, Value)}
    return _make_taker(wanted, len(args.children), keys, [order[value] for value in graph.inputs], device)


_UNUSUAL = object()
# Not subclasses, which may override operators.
_EXACT_TYPES = (torch.Tensor, torch.nn.Parameter)


def _expected_layout(leaf: Any) -> Any:
    """Return dtype, shape and strides of an input; None for a literal None."""
    if leaf is None:
        return None
    type = leaf.type
    is_usual = isinstance(type, TensorType) and type.layout is torch.strided and not type.dtype.is_complex
    return (type.dtype, torch.Size(type.static_shape), type.static_strides) if is_usual else _UNUSUAL


def _make_taker(
    wanted: Sequence[Any], count: int, keys: tuple[str, ...], order: Sequence[int], device: torch.device
) -> FastPath:
    is_in_order = list(order) == list(range(len(wanted)))

    def take(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, ...] | None:
        if len(args) != count or len(kwargs) != len(keys):
            return None
        if keys:
            if any(key not in kwargs for key in keys):
                return None
            args = (*args, *[kwargs[key] for key in keys])
        for item, expected in zip(args, wanted):  # noqa: B905 - equally many, checked above
            if expected is None:
                if item is not None:
                    return None
                continue
            dtype, shape, strides = expected
            if (
                type(item) not in _EXACT_TYPES
                or item.layout is not torch.strided
                or item.dtype is not dtype
                or item.shape != shape
                or item.stride() != strides
                or item.device != device
            ):
                return None
        return args if is_in_order else tuple([args[index] for index in order])

    return take
