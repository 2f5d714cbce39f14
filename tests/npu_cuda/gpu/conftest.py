"""Tests that need an NVIDIA GPU: left out where PyTorch finds none, which the run says.

Each prints what it measured: run them by ``pytest -m gpu -s tests/npu_cuda/gpu``.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if torch.cuda.is_available():
        return
    without = [item for item in items if item.get_closest_marker("gpu")]
    if without:
        config.hook.pytest_deselected(items=without)
        items[:] = [item for item in items if not item.get_closest_marker("gpu")]
        config.stash[LEFT_OUT] = len(without)


def pytest_report_collectionfinish(config: pytest.Config) -> str | list[str]:
    count = config.stash.get(LEFT_OUT, 0)
    return f"{count} tests marked gpu are left out: PyTorch finds no GPU here" if count else []


LEFT_OUT = pytest.StashKey[int]()


@pytest.fixture(autouse=True)
def _nothing_pending() -> Iterator[None]:
    """Fail the test, not the one after it, where work on the GPU failed."""
    yield
    torch.cuda.synchronize()
