"""Checks of tensors that a state is copied from, or into: each has data, in memory that can be written to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from npu_runtime._torch.tensors import find_data_problem
from npu_runtime.errors import TracingError
from npu_runtime.executor.input_updates import find_write_problem


def require_data(state: Any, owner: str) -> None:
    """Refuse a state in which a tensor has no data to read.

    Args:
        state: Tensors, nested in dicts, lists and tuples.
        owner: Whose state that is, for the message.

    Raises:
        TracingError: It names the first one.
    """
    for name, tensor in _named_tensors(state):
        problem = find_data_problem(tensor)
        if problem is not None:
            raise TracingError(
                f"{name} of {owner} is {problem}: it has no data",
                fix="load its tensors first: a model made on meta has shapes and dtypes alone",
            )


def require_memory(state: Mapping[str, Any], owner: str) -> None:
    """Refuse tensors to copy into that have no memory, or whose memory cannot be written to.

    PyTorch drops in silence what is copied into a tensor on ``meta``, and finds other ones only after it has
    written to those before.

    Args:
        state: What ``state_dict()`` of a module returns.
        owner: Whose state that is, for the message.

    Raises:
        TracingError: It names the first one.
    """
    for name, tensor in state.items():
        if not isinstance(tensor, torch.Tensor) or is_lazy(tensor):
            continue  # one that is lazy takes the shape of what is loaded
        if (problem := find_data_problem(tensor)) is not None:
            raise TracingError(
                f"{name} of {owner} is {problem}: it has no memory to copy into",
                fix='give it memory first: model.to_empty(device="cpu")',
            )
        if (obstacle := find_write_problem(tensor.detach())) is not None:
            raise TracingError(f"{name} of {owner} {obstacle[0]}: it cannot be written to", fix=obstacle[1])


def _named_tensors(item: Any, name: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(item, torch.Tensor):
        if not is_lazy(item):
            yield name, item
    elif isinstance(item, (Mapping, list, tuple)):
        entries = item.items() if isinstance(item, Mapping) else enumerate(item)
        for key, part in entries:
            yield from _named_tensors(part, f"{name}.{key}" if name else str(key))
