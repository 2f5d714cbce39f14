"""The CUDA device on the emulator: devices, captures, graphs, threads, and every runtime call failing.

Each test is a file of scenarios in C++, in ``scenarios``; after a scenario nothing may be left alive.
"""

import re
import subprocess
from pathlib import Path

import pytest

from tests.support.emulator.building import CSRC, SCENARIOS, compile_files, link, require_compiler

CORE = (
    "dispatch.cpp", "eager_workspace.cpp", "kernel.cpp", "later.cpp", "op_info.cpp", "planner.cpp",
    "reader_epochs.cpp", "registry.cpp",
)  # fmt: skip
OF_THE_LIBRARY = ("cuda_status", "compiled_kernels", "nvrtc")  # of csrc/cuda: they use what lists the devices
FILES = [path.name for path in sorted(SCENARIOS.glob("*.cpp")) if path.stem not in {"main", "rig"}]


def scenarios_of(file: str) -> list[str]:
    return re.findall(r'^const Scenario \w+\("(\w+)"', (SCENARIOS / file).read_text(), re.MULTILINE)


@pytest.fixture(scope="session")
def driver() -> Path:
    """Return the program that runs scenarios: core and device, without Python, nanobind or the ops."""
    require_compiler()
    device = [path for path in sorted((CSRC / "cuda").glob("*.cpp")) if path.stem not in OF_THE_LIBRARY]
    core = [CSRC / "core" / name for name in CORE]
    return link("driver", compile_files([*core, *device, *sorted(SCENARIOS.glob("*.cpp"))]))


@pytest.mark.parametrize("file", FILES)
def test_the_device(driver: Path, file: str) -> None:
    for scenario in scenarios_of(file):
        command = [str(driver), scenario]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == 0, f"{scenario}\n{done.stdout}{done.stderr}"


def test_every_scenario_is_found(driver: Path) -> None:
    found = sorted(name for file in FILES for name in scenarios_of(file))

    done = subprocess.run([driver], capture_output=True, text=True, check=True)
    assert done.stdout.split() == found
