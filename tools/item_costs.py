"""A plugin of pytest that writes CPU seconds and the outcome of each item as JSON: ``-p tools.item_costs``.

The file is the one that ``ITEM_COSTS`` names. A child process counts for the item that waited for it.
"""

from __future__ import annotations

import json
import os
import resource
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

costs: dict[str, dict[str, float | str]] = {}


def cpu_seconds() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    item.user_properties.append(("started", cpu_seconds()))
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report = yield
    report.cpu_s = cpu_seconds() - dict(item.user_properties)["started"]
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    row = costs.setdefault(report.nodeid, {"outcome": "passed"})
    row["cpu_s"] = round(report.cpu_s, 4)
    if report.outcome != "passed":
        row["outcome"] = report.outcome


def pytest_sessionfinish() -> None:
    if "PYTEST_XDIST_WORKER" not in os.environ:
        Path(os.environ["ITEM_COSTS"]).write_text(json.dumps(costs, indent=0))
