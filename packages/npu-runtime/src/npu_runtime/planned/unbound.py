"""Calls that are bound to their tensors once, so that only numbers are left to give."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from npu_ir import Value


class Unbound:
    """Stands for a callable that is made when tensors are known.

    Args:
        lists: The values that it works on.
        bind: Returns the callable, given the tensors of each list.
    """

    def __init__(self, lists: Sequence[Sequence[Value]], bind: Callable[..., Callable[..., Any]]) -> None:
        self._lists = lists
        self._bind = bind

    def bound(self, tensors: Mapping[Value, Any]) -> Callable[..., Any]:
        """Return the callable over these tensors."""
        return self._bind(*[[tensors[value] for value in values] for values in self._lists])

    def __call__(self, *_args: Any, **_kwargs: Any) -> None:
        raise AssertionError("a program calls what was bound")
