"""Captures on an NVIDIA GPU: left out where PyTorch finds none, which the run says.

Run them by ``pytest -m gpu tests/npu_runtime/training/capture/gpu``.
"""

import pytest
import torch

LEFT_OUT = pytest.StashKey[int]()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if torch.cuda.is_available():
        return
    without = [item for item in items if item.path.parent.name == "gpu" and item.get_closest_marker("gpu")]
    mine = [item for item in without if "npu_runtime" in item.path.parts]
    if mine:
        config.hook.pytest_deselected(items=mine)
        items[:] = [item for item in items if item not in mine]
        config.stash[LEFT_OUT] = len(mine)


def pytest_report_collectionfinish(config: pytest.Config) -> str | list[str]:
    count = config.stash.get(LEFT_OUT, 0)
    return f"{count} captures marked gpu are left out: PyTorch finds no GPU here" if count else []
