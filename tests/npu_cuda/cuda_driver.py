"""Build and run C++ scenarios of the emulated CUDA device, without Python, nanobind or the ops."""

from __future__ import annotations

import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.support.emulator.building import (
    CSRC,
    SCENARIOS,
    build_folder,
    compile_file,
    emulator_objects,
    run_compiler,
)

CORE = tuple(
    f"{name}.cpp"
    for name in (
        *(
            "attr_schema",
            "call",
            "call_checks",
            "dispatch",
            "eager_workspace",
            "hazards",
            "kernel",
            "op_info",
        ),
        "registry",
    )
)


def names(file: str) -> list[str]:
    """Return the scenarios of a source file, as its table lists them."""
    return re.findall(r'^ +\{"(\w+)", ', (SCENARIOS / file).read_text(), re.MULTILINE)


def built_driver() -> Path:
    """Return the program that runs scenarios."""
    device = [path for path in sorted((CSRC / "cuda").glob("*.cpp")) if path.name != "cuda_status.cpp"]
    sources = [*(CSRC / "core" / name for name in CORE), *device, *sorted(SCENARIOS.glob("*.cpp"))]
    with ThreadPoolExecutor(2) as pool:
        parts = list(pool.map(lambda source: compile_file(source, "-O1", f"-I{SCENARIOS}"), sources))
    return run_compiler(build_folder() / "driver", *parts, *emulator_objects(), "-ldl", "-lpthread")


def run(command: list[str]) -> None:
    """Run a command; a failure shows what it printed."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
