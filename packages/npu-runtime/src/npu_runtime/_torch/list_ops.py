"""Ops on lists of FakeTensors: run on one element of each combination of types, as many have the same.

An optimizer calls dozens of them on hundreds of tensors, and each infers its results one by one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._ops import OpOverload

from npu_runtime._torch.tensors import new_fake


@functools.cache
def is_list_op(op: Any) -> bool:
    """Return whether an op works on elements of lists one by one: ``_foreach_add`` and the like."""
    return isinstance(op, OpOverload) and op.namespace == "aten" and op._opname.startswith("_foreach_")


def run_on_distinct(
    dispatch: Callable[..., Any], op: OpOverload, types: Any, args: Sequence[Any], kwargs: Any
) -> Any:
    """Return what ``dispatch`` returns for a list op, which it runs on distinct elements only.

    Args:
        dispatch: Runs an op on FakeTensors: takes the op, types, args and kwargs.
        op: The op.
        types: As ``__torch_dispatch__`` gets them, like the rest.
        args: The positional arguments.
        kwargs: The keyword arguments.
    """
    lists = [item for item in args if isinstance(item, (list, tuple))]
    if len({len(item) for item in lists}) != 1:
        return dispatch(op, types, args, kwargs)
    keys = [tuple(map(_type_key, elements)) for elements in zip(*lists, strict=True)]
    first: dict[Any, int] = {}
    for index, key in enumerate(keys):
        first.setdefault(key, index)
    if len(first) == len(keys) or any(None in key for key in first):
        return dispatch(op, types, args, kwargs)
    kept = first.values()
    reduced = [[item[index] for index in kept] if isinstance(item, (list, tuple)) else item for item in args]
    results = dispatch(op, types, reduced, kwargs)
    if results is None:
        return None
    of_key = dict(zip(first, results, strict=True))
    return [
        result if first[key] == index else new_fake(result.fake_mode, result)
        for index, key in enumerate(keys)
        for result in (of_key[key],)
    ]


def _type_key(item: Any) -> Any:
    """Return what the type of a result depends on: None for a tensor with a known content."""
    if not isinstance(item, torch.Tensor):
        return type(item)
    if getattr(item, "constant", True) is not None or item.layout is not torch.strided:
        return None
    return item.dtype, item.fake_device, tuple(item.shape), item.stride()  # type: ignore[attr-defined]
