"""The first step in eager PyTorch, which initialises optimizer state that cannot be predicted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from npu_ir.core.structure import flatten, unflatten
from npu_runtime.training.capture.snapshots import Snapshot
from npu_runtime.training.tracing.components import TrainingComponents


def run_first_step(
    function: Callable[..., Any],
    components: TrainingComponents,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> Any:
    """Take a step in eager PyTorch; return its results, detached.

    If it raises, modules, optimizers and random generators are restored; gradients are restored in any case.
    """
    optimizers = list(components.optimizers.values())
    before = [{item: dict(entries) for item, entries in optimizer.state.items()} for optimizer in optimizers]
    state_tensors = [
        tensor
        for state in before
        for entries in state.values()
        for tensor in entries.values()
        if isinstance(tensor, torch.Tensor)
    ]
    snapshot = Snapshot([*components.parameters().values(), *components.buffers().values(), *state_tensors])
    gradients = [(parameter, parameter.grad) for parameter in components.parameters().values()]
    for parameter, _ in gradients:
        parameter.grad = None
    try:
        with torch.inference_mode(False):  # gradients are recorded in any mode of the caller
            leaves, structure = flatten(function(*args, **kwargs))
    except BaseException:
        snapshot.restore()
        for optimizer, state in zip(optimizers, before, strict=True):
            optimizer.state.clear()
            optimizer.state.update(state)
        raise
    finally:
        for parameter, gradient in gradients:
            parameter.grad = gradient
    return unflatten(
        structure, [item.detach() if isinstance(item, torch.Tensor) else item for item in leaves]
    )
