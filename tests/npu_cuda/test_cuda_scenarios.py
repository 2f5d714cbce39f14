"""The CUDA device on the emulator: devices, captures, graphs, threads, and every runtime call failing.

Each test is a scenario in C++, in the file of its name under ``cuda_scenarios``; after it nothing may be
left alive.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.npu_cuda import cuda_driver
from tests.support.emulator.building import SCENARIOS, require_compiler


@pytest.fixture(scope="session")
def driver() -> Path:
    require_compiler()
    return cuda_driver.built_driver()


@pytest.mark.parametrize("scenario", cuda_driver.names("device.cpp"))
def test_device(driver: Path, scenario: str) -> None:
    cuda_driver.run([str(driver), scenario])


@pytest.mark.parametrize("scenario", cuda_driver.names("capture.cpp"))
def test_capture(driver: Path, scenario: str) -> None:
    cuda_driver.run([str(driver), scenario])


@pytest.mark.parametrize("scenario", cuda_driver.names("refusals.cpp"))
def test_while_a_stream_captures(driver: Path, scenario: str) -> None:
    cuda_driver.run([str(driver), scenario])


@pytest.mark.parametrize("scenario", cuda_driver.names("dag.cpp"))
def test_edges(driver: Path, scenario: str) -> None:
    cuda_driver.run([str(driver), scenario])


@pytest.mark.parametrize("scenario", cuda_driver.names("dispatch.cpp"))
def test_dispatch(driver: Path, scenario: str) -> None:
    cuda_driver.run([str(driver), scenario])


@pytest.mark.parametrize("scenario", cuda_driver.names("update.cpp"))
def test_update(driver: Path, scenario: str) -> None:
    cuda_driver.run([str(driver), scenario])


@pytest.mark.parametrize("scenario", cuda_driver.names("threads.cpp"))
def test_threads(driver: Path, scenario: str) -> None:
    cuda_driver.run([str(driver), scenario])


@pytest.mark.parametrize("scenario", cuda_driver.names("faults.cpp"))
def test_faults(driver: Path, scenario: str) -> None:
    cuda_driver.run([str(driver), scenario])


def test_every_scenario_is_a_test(driver: Path) -> None:
    files = [path.name for path in SCENARIOS.glob("*.cpp")]
    listed = sorted(name for file in files for name in cuda_driver.names(file))

    done = subprocess.run([driver], capture_output=True, text=True, check=True)
    assert done.stdout.split() == listed
