"""Shared test setup: fixed seed, one thread, garbage, profiles of hypothesis, and what a run leaves out."""

import gc
import os
from collections import Counter

import hypothesis
import pytest
import torch
from hypothesis import HealthCheck

from tests.support.known_failures import known_failure

SLOW_IS_FINE = [HealthCheck.too_slow, HealthCheck.data_too_large]
LEFT_OUT = pytest.StashKey[Counter[str]]()
WITHOUT_GPU = pytest.StashKey[int]()

hypothesis.settings.register_profile(
    "normal",
    deadline=None,
    suppress_health_check=SLOW_IS_FINE,
    max_examples=50,
    derandomize="CI" in os.environ,
)
hypothesis.settings.register_profile(
    "exhaustive", deadline=None, suppress_health_check=SLOW_IS_FINE, max_examples=500
)
hypothesis.settings.load_profile("normal")


def pytest_configure(config: pytest.Config) -> None:
    gc.disable()  # until all is imported
    torch.set_num_threads(1)
    config.stash[LEFT_OUT] = Counter()


def pytest_report_header() -> str:
    return f"torch {torch.__version__}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("smoke") and item.get_closest_marker("exhaustive"):
            raise pytest.UsageError(f"{item.nodeid} is of the smoke tier, and left to the exhaustive one")
        if row := known_failure(item.nodeid, torch.__version__):
            item.add_marker(pytest.mark.xfail(reason=row.cause, strict=True))
    without = {item for item in items if item.get_closest_marker("gpu")}
    if without and not torch.cuda.is_available():
        config.hook.pytest_deselected(items=list(without))
        items[:] = [item for item in items if item not in without]
        config.stash[WITHOUT_GPU] = len(without)


def pytest_collection_finish() -> None:
    """Have garbage collections pass over what was imported, which takes them long, and be fewer."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    gc.enable()


def pytest_report_collectionfinish(config: pytest.Config) -> str | list[str]:
    count = config.stash.get(WITHOUT_GPU, 0)
    return f"{count} tests marked gpu are left out: PyTorch finds no GPU here" if count else []


def pytest_deselected(items: list[pytest.Item]) -> None:
    for item in items:
        if item.config.option.markexpr == "not exhaustive" and item.get_closest_marker("exhaustive"):
            item.config.stash[LEFT_OUT][str(item.path.parent.relative_to(item.config.rootpath))] += 1


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: pytest.Config) -> None:
    """Take what a process of pytest-xdist has left out: each of them collects everything."""
    node.config.stash[LEFT_OUT] = Counter(getattr(node, "workeroutput", {}).get("left out", {}))


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left out"] = dict(session.config.stash[LEFT_OUT])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    left_out = config.stash[LEFT_OUT]
    if left_out:
        folders = ", ".join(f"{folder} {count}" for folder, count in sorted(left_out.items()))
        terminalreporter.write_line(f"{left_out.total()} items are left to nox -s exhaustive: {folders}")


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)
