"""Attributes of modules that a step changes: a graph would not change them."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import GraphModule
from torch.nn import Module

from npu_runtime.errors import TracingError
from npu_runtime.training.tracing.components import Subjects

_NUMBERS = (bool, int, float)


class Attributes:
    """The numbers and tensors that modules keep as attributes, as they are before a step.

    Args:
        subjects: The modules.
    """

    def __init__(self, subjects: Subjects) -> None:
        self._before: list[tuple[str, Module, str, Any]] = [
            (f"{prefix}{path}.{key}".lstrip("."), part, key, value)
            for prefix, module in subjects.modules.items()
            for path, part in module.named_modules()
            for key, value in vars(part).items()
            if type(value) in _NUMBERS or isinstance(value, torch.Tensor)
        ]
        self._replaced: list[tuple[str, torch.Tensor]] = []

    def require_same_numbers(self) -> None:
        """Refuse a step that counts in Python; called when it has run.

        Raises:
            TracingError: A number has changed.
        """
        for path, module, key, value in self._before:
            now = vars(module).get(key)
            if isinstance(value, torch.Tensor):
                if now is not value:
                    self._replaced.append((path, value))
            elif type(now) in _NUMBERS and now != value:
                raise _changed(path, f"from {value!r} to {now!r}")

    def require_unread(self, module: GraphModule) -> None:
        """Refuse a step that reads a tensor and replaces it; one that only leaves tensors there goes on.

        Raises:
            TracingError: The next step would read what this one has left.
        """
        read = {
            id(getattr(module, str(node.target), None))
            for node in module.graph.nodes
            if node.op == "get_attr"
        }
        for path, value in self._replaced:
            if id(value) in read:
                raise _changed(path, "to another tensor")


def _changed(path: str, how: str) -> TracingError:
    return TracingError(
        f"the step changes {path!r} {how}: a graph would not",
        fix="keep it in a buffer (register_buffer), as a tensor; or change it outside of the step",
    )
