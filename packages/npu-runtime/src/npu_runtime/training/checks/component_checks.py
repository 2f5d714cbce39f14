"""Checks of the training components and weights of a step for obstacles to its capture."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from npu_ir import Graph
from npu_ir.core.tensor_bytes import same_data
from npu_runtime.training.checks.violations import Violation
from npu_runtime.training.tracing.components import TrainingComponents


def component_violations(components: TrainingComponents) -> Iterator[Violation]:
    """Yield hooks that a replay would not run."""
    for name, parameter in components.parameters().items():
        hooks = [
            *(parameter._backward_hooks or {}).values(),
            *(getattr(parameter, "_post_accumulate_grad_hooks", None) or {}).values(),
        ]
        for hook in hooks:
            yield Violation(
                "parameter-hook",
                f"the parameter {name!r} has a hook, {_hook_name(hook)}, which would not run in a replay",
                _hook_location(hook),
                "change gradients in the step function, between backward() and step(); and remove the hook",
            )
    for prefix, optimizer in components.optimizers.items():
        kinds = (optimizer._optimizer_step_pre_hooks, optimizer._optimizer_step_post_hooks)
        for hook in (hook for hooks in kinds for hook in hooks.values()):
            yield Violation(
                "optimizer-hook",
                f"{prefix}{type(optimizer).__name__} has a hook on its step, {_hook_name(hook)}, "
                "which would not run"
                " in a replay",
                _hook_location(hook),
                "do its work after each replay, and remove the hook",
            )


def baked_parameters(graph: Graph, weights: Mapping[str, torch.Tensor]) -> Iterator[Violation]:
    """Yield constants of a graph with the contents of a parameter: copies that would never be trained."""
    trained = {name: item for name, item in weights.items() if item.requires_grad and item.numel() > 1}
    for value in graph.constants.values():
        assert value.argument is not None
        data = value.argument.data
        if data is None:
            continue
        for name, item in trained.items():
            is_meta = data.is_meta or item.is_meta
            if data.requires_grad or (not is_meta and same_data(data, item)):
                yield Violation(
                    "baked-tensor",
                    f"the constant %{value.name} is a copy of the parameter {name!r}: "
                    "it would never be trained",
                    next(
                        (str(node.provenance) or node.name for node in value.users), f"graph {graph.name!r}"
                    ),
                    "reach the parameter through its module in the step, not through a detached copy",
                )
                break


def device_violations(graph: Graph, weights: Mapping[str, Any], device: torch.device) -> Iterator[Violation]:
    """Yield weights that are on another device than the step."""
    for value in graph.arguments:
        argument = value.argument
        assert argument is not None
        item = weights.get(argument.target)
        if isinstance(item, torch.Tensor) and item.device.type != device.type:
            yield Violation(
                "other-device",
                f"{argument.target!r} is on {item.device}, the step on {device}",
                f"graph {graph.name!r}",
                f"move the model before its optimizer is made: model.to({str(device)!r})",
            )


def _hook_name(hook: Any) -> str:
    return repr(getattr(hook, "__qualname__", type(hook).__name__))


def _hook_location(hook: Any) -> str:
    code = getattr(getattr(hook, "__func__", hook), "__code__", None)
    return "its source is unknown" if code is None else f"{code.co_filename}:{code.co_firstlineno}"
