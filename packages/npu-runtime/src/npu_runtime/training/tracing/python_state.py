"""Python state that a step changes, which a graph would not: numbers, tensors in attributes, random draws."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.fx import GraphModule

from npu_ir.capture.python_state import PythonState
from npu_runtime.errors import TracingError
from npu_runtime.training.tracing.components import TrainingComponents


class StepPythonState:
    """The numbers, tensors and random generators that Python code of a step can reach, before the step.

    These are those of `npu_ir.capture.python_state.PythonState`, and tensors that are attributes of modules.

    Args:
        components: The modules.
        function: The step function.
    """

    def __init__(self, components: TrainingComponents, function: Callable[..., Any]) -> None:
        modules = {
            f"{prefix}{path}".rstrip("."): part
            for prefix, module in components.modules.items()
            for path, part in module.named_modules()
        }
        self._tensors = [
            (f"{path}.{key}".lstrip("."), part, key, value)
            for path, part in modules.items()
            for key, value in vars(part).items()
            if isinstance(value, torch.Tensor)
        ]
        self._numbers = PythonState(modules, {"the step": function})
        self._replaced: list[tuple[str, torch.Tensor]] = []

    def require_unchanged(self) -> None:
        """Raise if the step changed a number or drew one, and record the tensors it replaced; after the step.

        Raises:
            TracingError: A number has changed, or a generator outside of PyTorch has been drawn from.
        """
        for path, how in self._numbers.changed_numbers().items():
            raise _changed_error(path, how)
        for name in self._numbers.drawn_generators():
            raise TracingError(
                f"the step draws random numbers of {name}: a graph would repeat those of its trace",
                fix="draw them with PyTorch, as torch.rand(()), and choose with torch.where; or draw "
                "outside of the step, and pass tensors",
            )
        self._replaced += [
            (path, value) for path, part, key, value in self._tensors if vars(part).get(key) is not value
        ]

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
