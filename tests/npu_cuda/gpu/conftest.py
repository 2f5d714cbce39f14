"""Tests that need an NVIDIA GPU: ``pytest -m gpu``. At the end they print what they found out about it."""

from collections.abc import Callable, Iterator

import pytest
import torch

import npu_cuda

ANSWERS = pytest.StashKey[list[str]]()


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
