"""Installing plugins for one test."""

from importlib.metadata import entry_points

import pytest

from npu_ir.plugins import plugin_manager
from tests.support.passes.plugins import Install, Point, point
from tests.support.passes.sample_passes import SAMPLES


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Install:
    def add(*points: Point) -> None:
        ours = [item for item in entry_points(group=plugin_manager.GROUP) if item.name.startswith("npu-")]
        found = plugin_manager.load([*ours, *points], set())  # type: ignore[list-item]
        monkeypatch.setattr(plugin_manager, "get_plugins", lambda: found)

    return add


@pytest.fixture
def samples(install: Install) -> None:
    """Install the passes of `tests.support.passes.sample_passes`."""
    install(point("samples", SAMPLES))
