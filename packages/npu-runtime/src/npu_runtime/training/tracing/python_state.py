"""Python state that a step changes, which a graph would not: numbers, tensors in attributes, random draws."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator, Sized
from types import FunctionType, MethodType
from typing import Any

import torch
from torch.fx import GraphModule
from torch.nn import Module

from npu_ir.capture.held_tensors import OF_EVERY_MODULE, children_of
from npu_ir.core.literals import same_literal
from npu_runtime.errors import TracingError
from npu_runtime.training.tracing.components import TrainingComponents

_NUMBERS = (bool, int, float)
_DEPTH = 3  # of objects, containers and functions in one another
_MOST_ELEMENTS = 1000  # of a container: in a longer one is data
# Guards compare the numbers of optimizers; modules are walked one by one.
_OTHERWISE_CHECKED = (Module, torch.Tensor, torch.optim.Optimizer, type, type(sys))


class PythonState:
    """The numbers, tensors and random generators that Python code of a step can reach, before the step.

    These are attributes of modules, what is in containers and objects there, and the variables outside of the
    step function, the loss function and ``forward`` that they read.

    Args:
        components: The modules.
        function: The step function.
    """

    def __init__(self, components: TrainingComponents, function: Callable[..., Any]) -> None:
        self._modules = [
            (f"{prefix}{path}".rstrip("."), part)
            for prefix, module in components.modules.items()
            for path, part in module.named_modules()
        ]
        self._function = function
        self._tensors = [
            (f"{path}.{key}".lstrip("."), part, key, value)
            for path, part in self._modules
            for key, value in vars(part).items()
            if isinstance(value, torch.Tensor)
        ]
        self._before = self._numbers()
        self._draws = _random_states()
        self._replaced: list[tuple[str, torch.Tensor]] = []

    def require_unchanged(self) -> None:
        """Raise if the step changed a number or drew one, and record the tensors it replaced; after the step.

        Raises:
            TracingError: A number has changed, or a generator outside of PyTorch has been drawn from.
        """
        now = self._numbers()
        for path, value in self._before.items():
            if path in now and not same_literal(now[path], value):
                raise _changed_error(path, f"from {value!r} to {now[path]!r}")
        for name, state in _random_states().items():
            if state != self._draws.get(name, state):
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

    def _numbers(self) -> dict[str, bool | int | float]:
        found: dict[str, bool | int | float] = {}
        seen: dict[int, Any] = {}  # by id, and kept: no other object gets the id
        for path, part in self._modules:
            for key, value in vars(part).items():
                if key == "training" or key not in OF_EVERY_MODULE:
                    _add_numbers(found, f"{path}.{key}".lstrip("."), value, seen, _DEPTH)
            _add_numbers(found, f"{type(part).__name__}.forward", type(part).forward, seen, _DEPTH)
        _add_numbers(found, "the step", self._function, seen, _DEPTH)
        return found


def _add_numbers(found: dict[str, Any], path: str, item: Any, seen: dict[int, Any], depth: int) -> None:
    """Add the numbers in ``item``, by their path."""
    if type(item) in _NUMBERS:
        found[path] = item
    elif depth and id(item) not in seen and not isinstance(item, _OTHERWISE_CHECKED):
        seen[id(item)] = item
        for name, part in _parts(path, item):
            _add_numbers(found, name, part, seen, depth - 1)


def _parts(path: str, item: Any) -> Iterator[tuple[str, Any]]:
    """Yield what is in an object, a container, a function or a method, with its path."""
    if isinstance(item, FunctionType):
        yield from _outside_variables(item)
    elif isinstance(item, MethodType):
        yield from ((path, item.__self__), (path, item.__func__))
    elif not (isinstance(item, Sized) and len(item) > _MOST_ELEMENTS):
        yield from ((f"{path}.{key}", part) for key, part in children_of(item))


def _outside_variables(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield what a function reads of enclosing functions, and the numbers and containers of its module."""
    name, module = function.__qualname__, function.__module__ or "__main__"  # of code without a module: None
    if module.partition(".")[0] == "torch":
        return
    for variable, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        if _is_filled(cell):
            yield f"{variable} of {name}", cell.cell_contents
    for variable in function.__code__.co_names:
        value = function.__globals__.get(variable)
        if type(value) in (*_NUMBERS, list, dict):
            yield f"{module}.{variable}", value


def _is_filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - an empty cell raises
    except ValueError:
        return False
    return True


def _random_states() -> dict[str, Any]:
    """Return the states of the generators of Python and NumPy that have no owner, by module."""
    states: dict[str, Any] = {"random": random.getstate()}
    if "numpy.random" in sys.modules:
        name, keys, *rest = sys.modules["numpy.random"].get_state()
        states["numpy.random"] = (name, keys.tobytes(), *rest)
    return states


def _changed_error(path: str, how: str) -> TracingError:
    return TracingError(
        f"the step changes {path!r} {how}: a graph would not",
        fix="keep it in a buffer (register_buffer), as a tensor; or change it outside of the step",
    )
