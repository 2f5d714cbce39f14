"""Tests that need an NVIDIA GPU: left out where PyTorch finds none, which the run says.

Run them by ``pytest -m gpu tests/npu_cuda/gpu``: what they found out about the machine is printed at the end.
"""

from collections.abc import Callable, Iterator

import pytest
import torch

import npu_cuda

LEFT_OUT = pytest.StashKey[int]()
ANSWERS = pytest.StashKey[list[str]]()


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


@pytest.fixture(autouse=True)
def _nothing_pending() -> Iterator[None]:
    """Fail the test, not the one after it, where work on the GPU failed or a capture was left open."""
    yield
    npu_cuda.graph_abort()
    torch.cuda.synchronize()


@pytest.fixture
def answer(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Return what takes a line for the end of the run: what a test found out."""
    return request.config.stash.setdefault(ANSWERS, []).append


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    answers = config.stash.get(ANSWERS, [])
    if answers:
        terminalreporter.section("what the GPU answered")
        terminalreporter.write_line("\n".join(answers))
