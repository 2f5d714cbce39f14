"""Deferred bindings: callables created when the tensors of a program are known."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from npu_ir import Value


class DeferredBinding:
    """Placeholder of a callable that is created once tensors are known.

    Args:
        lists: The values that it operates on, as lists.
        bind: Returns the callable for the tensors of each list.
    """

    def __init__(self, lists: Sequence[Sequence[Value]], bind: Callable[..., Callable[..., Any]]) -> None:
        self._lists = lists
        self._bind = bind

    def bind(self, tensors: Mapping[Value, Any]) -> Callable[..., Any]:
        """Return the callable bound to these tensors."""
        return self._bind(*[[tensors[value] for value in values] for values in self._lists])

    def __call__(self, *_args: Any, **_kwargs: Any) -> None:
        raise AssertionError("a program calls what was bound")
