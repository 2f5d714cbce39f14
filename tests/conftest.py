"""Shared test setup: fixed seed, one thread, hypothesis profile, and tests that follow each other."""

from __future__ import annotations

import os

import hypothesis
import pytest
import torch

from tests.support.tiers import choose_tier

hypothesis.settings.register_profile("local", deadline=None)
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "local")


def pytest_configure(config: pytest.Config) -> None:
    torch.set_num_threads(1)
    choose_tier(config.option.markexpr)


def pytest_report_header() -> str:
    return f"torch {torch.__version__}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Group the tests marked ``captured_once`` by case: they share a capture."""
    first: dict[str, int] = {}

    def place(entry: tuple[int, pytest.Item]) -> int:
        index, item = entry
        if item.get_closest_marker("captured_once") is None:
            return index
        assert isinstance(item, pytest.Function)
        return first.setdefault(item.callspec.params["case"].id, index)

    items[:] = [item for _, item in sorted(enumerate(items), key=place)]


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)
