"""Installing plugins for one test."""

from __future__ import annotations

import types
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any

import pytest

from npu_ir.plugins import plugin_manager
from npu_ir.plugins.hookspecs import hookimpl
from tests.npu_passes.sample_passes import SAMPLES

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


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Install:
    """Return a function that adds the plugins at these entry points to those that are installed."""

    def add(*points: Point) -> None:
        ours = [item for item in entry_points(group=plugin_manager.GROUP) if item.name.startswith("npu-")]
        found = plugin_manager.load([*ours, *points], set())  # type: ignore[list-item]
        monkeypatch.setattr(plugin_manager, "get_plugins", lambda: found)

    return add


@pytest.fixture
def samples(install: Install) -> None:
    """Install the passes of `tests.npu_passes.sample_passes`."""
    install(point("samples", SAMPLES))
