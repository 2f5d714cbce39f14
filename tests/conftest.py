"""Shared test setup: fixed seed, one thread, hypothesis profiles."""

from __future__ import annotations

import os

import hypothesis
import pytest
import torch

from tests.support.tiers import EXHAUSTIVE_PROFILE

hypothesis.settings.register_profile("local", deadline=None)
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True)
hypothesis.settings.register_profile(EXHAUSTIVE_PROFILE, deadline=None)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "local")


def pytest_configure() -> None:
    torch.set_num_threads(1)


def pytest_report_header() -> str:
    return f"torch {torch.__version__}"


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)
