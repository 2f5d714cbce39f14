"""Python state that code can reach and a graph does not have: numbers, and random generators of Python."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sized
from types import FunctionType, MethodType
from typing import Any

import torch

from npu_ir.capture.held_tensors import OF_EVERY_MODULE, children_of
from npu_ir.core.literals import same_literal
from npu_ir.core.user_code import warn_caller
from npu_ir.errors import CaptureWarning

_NUMBERS = (bool, int, float)
_DEPTH = 3  # of objects, containers and functions in one another
_MOST_ELEMENTS = 1000  # of a container: in a longer one is data
# Modules are walked one by one; guards of training steps compare the numbers of optimizers.
_OTHERWISE_CHECKED = (torch.nn.Module, torch.Tensor, torch.optim.Optimizer, type, type(sys))


class PythonState:
    """A snapshot of the numbers and random generators that the code of modules and functions can reach.

    Numbers are those in attributes of modules, in the containers and objects there, and in the variables
    outside of ``forward`` and of the functions that these read.

    Args:
        modules: By path.
        functions: By the name that their numbers are reported under.
    """

    def __init__(
        self, modules: Mapping[str, torch.nn.Module], functions: Mapping[str, Callable[..., Any]]
    ) -> None:
        self._modules = modules
        self._functions = functions
        self._before = self._numbers()
        self._generators = _random_states()

    def changed_numbers(self) -> dict[str, str]:
        """Return how numbers have changed since the snapshot, by path: ``from 0 to 1``."""
        now = self._numbers()
        return {
            path: f"from {value!r} to {now[path]!r}"
            for path, value in self._before.items()
            if path in now and not same_literal(now[path], value)
        }

    def drawn_generators(self) -> list[str]:
        """Return which of ``random`` and ``numpy.random`` have been drawn from since the snapshot."""
        now = _random_states()
        return [name for name, state in self._generators.items() if now.get(name, state) != state]

    def _numbers(self) -> dict[str, bool | int | float]:
        found: dict[str, bool | int | float] = {}
        seen: dict[int, Any] = {}  # by id, and kept: no other object gets the id
        for path, part in self._modules.items():
            for key, value in vars(part).items():
                if key == "training" or key not in OF_EVERY_MODULE:
                    _add_numbers(found, f"{path}.{key}".lstrip("."), value, seen, _DEPTH)
            _add_numbers(found, f"{type(part).__name__}.forward", type(part).forward, seen, _DEPTH)
        for name, function in self._functions.items():
            _add_numbers(found, name, function, seen, _DEPTH)
        return found


class PythonStateWarnings:
    """A context that warns of the Python numbers that ``forward`` of a model changes or draws in it.

    They are compared as ``forward`` returns: torch.export restores attributes before it does.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self._model = model
        self._changed: dict[str, str] = {}

    def __enter__(self) -> None:
        self._state = PythonState(dict(self._model.named_modules()), {})
        self._hook = self._model.register_forward_hook(self._compare)

    def _compare(self, *_: object) -> None:
        self._changed.update(self._state.changed_numbers())

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        self._hook.remove()
        if error is not None:
            return
        if self._changed:
            numbers = ", ".join(f"{path} {how}" for path, how in self._changed.items())
            warn_caller(
                f"forward changes {numbers}: the graph does not, and has what it computes from them as a "
                "constant; keep a number that calls change in a tensor (register_buffer)",
                CaptureWarning,
            )
        for name in self._state.drawn_generators():
            warn_caller(
                f"forward draws random numbers of {name}: the graph repeats those of its capture; draw them "
                "with PyTorch, as torch.rand(())",
                CaptureWarning,
            )


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
