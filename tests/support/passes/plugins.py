"""Plugins as if a distribution had installed them, and those that offer passes and pipelines."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

from npu_ir.plugins.hookspecs import hookimpl

Install = Callable[..., None]


class Point:
    """An entry point that loads to a plugin, or raises."""

    def __init__(self, name: str, plugin: object, distribution: str | None = "") -> None:
        self.name = name
        self.value = f"{name}.plugin"
        known = types.SimpleNamespace(name=distribution or f"{name}-dist", version="1.0")
        self.dist = None if distribution is None else known
        self._plugin = plugin

    def load(self) -> object:
        if isinstance(self._plugin, BaseException):
            raise self._plugin
        return self._plugin


def plugin(**hooks: Callable[..., Any]) -> types.ModuleType:
    module = types.ModuleType("a_plugin")
    for name, function in hooks.items():
        setattr(module, name, hookimpl(function))
    return module


def point(name: str, passes: Any = (), pipelines: Any = ()) -> Point:
    return Point(name, plugin(npu_passes=lambda: list(passes), npu_pipelines=lambda: list(pipelines)))
