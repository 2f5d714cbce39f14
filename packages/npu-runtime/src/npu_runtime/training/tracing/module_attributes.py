"""Checks that a step does not change attributes of modules, which a graph would not change."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import GraphModule
from torch.nn import Module

from npu_runtime.errors import TracingError
from npu_runtime.training.tracing.components import TrainingComponents

_NUMBERS = (bool, int, float)


class ModuleAttributes:
    """The numbers and tensors that modules have as attributes before a step.

    Args:
        components: The training components.
    """

    def __init__(self, components: TrainingComponents) -> None:
        self._before: list[tuple[str, Module, str, Any]] = [
            (f"{prefix}{path}.{key}".lstrip("."), part, key, value)
            for prefix, module in components.modules.items()
            for path, part in module.named_modules()
            for key, value in vars(part).items()
            if type(value) in _NUMBERS or isinstance(value, torch.Tensor)
        ]
        self._replaced: list[tuple[str, torch.Tensor]] = []

    def require_same_numbers(self) -> None:
        """Raise if the step changed a number, and record the tensors it replaced; called after the step.

        Raises:
            TracingError: A number has changed.
        """
        for path, module, key, value in self._before:
            now = vars(module).get(key)
            if isinstance(value, torch.Tensor):
                if now is not value:
                    self._replaced.append((path, value))
            elif type(now) in _NUMBERS and now != value:
                raise _changed_error(path, f"from {value!r} to {now!r}")

    def require_replaced_unread(self, module: GraphModule) -> None:
        """Raise if the step reads a tensor that it also replaces; writing without reading is accepted.

        Raises:
            TracingError: The next eager step would read the new tensor, a graph the old one.
        """
        read = {
            id(getattr(module, str(node.target), None))
            for node in module.graph.nodes
            if node.op == "get_attr"
        }
        for path, value in self._replaced:
            if id(value) in read:
                raise _changed_error(path, "to another tensor")


def _changed_error(path: str, how: str) -> TracingError:
    return TracingError(
        f"the step changes {path!r} {how}: a graph would not",
        fix="keep it in a buffer (register_buffer), as a tensor; or change it outside of the step",
    )
