"""Plugins that offer passes and pipelines, as if a distribution had installed them."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

from npu_ir.plugins.hookspecs import hookimpl

Install = Callable[..., None]


class Distribution:
    """As a plugin's entry point knows the one it comes from."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.version = "1.0"


class Point:
    """An entry point of a distribution that is not there."""

    def __init__(self, name: str, plugin: object) -> None:
        self.name = name
        self.value = f"{name}.plugin"
        self.dist = Distribution(f"{name}-dist")
        self._plugin = plugin

    def load(self) -> object:
        return self._plugin


def point(name: str, passes: Any = (), pipelines: Any = ()) -> Point:
    """Return the entry point of a plugin that offers passes and pipelines."""
    module = types.ModuleType(name)
    module.npu_passes = hookimpl(lambda: list(passes))  # type: ignore[attr-defined]
    module.npu_pipelines = hookimpl(lambda: list(pipelines))  # type: ignore[attr-defined]
    for hook in ("npu_passes", "npu_pipelines"):
        getattr(module, hook).__name__ = hook
    return Point(name, module)
