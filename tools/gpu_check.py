"""All GPU checks with one command, on a machine with a GPU: ``python tools/gpu_check.py``.

It builds npu-cuda in a folder of its own, for the GPU that is there, or installs a wheel that was built
elsewhere (``--wheel``), and needs no network: Python 3.11 or newer with torch, nanobind, scikit-build-core,
pytest and hypothesis, and nvcc. Then it runs the tests of ops and of the backend, on several processes where
pytest-xdist is installed, the tests marked ``gpu`` of npu-cuda and of captured training steps, the sanitizer
where it works, and the benchmarks, prints one table, and writes what it saw as JSON and text. Each step has
a time limit; together they stay under 13 minutes. Exit code: 0 if all is well, 1 if a step failed, 3 if
there is no GPU.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "packages" / "npu-cuda"
TESTS = ROOT / "tests" / "npu_cuda"
GPU_TESTS = TESTS / "gpu"
OP_TESTS = tuple(str(TESTS / name) for name in ("ops", "backend", "bindings", "core"))
TRAINING_TESTS = ROOT / "tests" / "npu_runtime" / "training" / "capture" / "gpu"
OTHERS = ("npu-ir", "npu-passes", "npu-runtime")
NVCC = Path("/usr/local/cuda/bin/nvcc")  # where it is installed, if PATH does not say
NO_GPU = 3
TOTAL_SECONDS = 770
MOST_PROCESSES = 12
MOST_TEXT = 200_000  # of what a step printed
# One op of each skeleton of kernels: a sanitizer makes all of them take too long.
SANITIZED = ("relu", "copy", "sum", "cumsum", "softmax", "layer_norm_bwd", "gemm", "index_put", "multi_sgd")
PYTHON = sys.executable


@dataclass(frozen=True, slots=True)
class Step:
    """Something to run.

    Attributes:
        name: For the table.
        command: What to run.
        limit: Seconds.
        needs_gpu: Left out where there is none.
        absence: Why it cannot be run here; empty if it can.
    """

    name: str
    command: tuple[str, ...]
    limit: int
    needs_gpu: bool = True
    absence: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a step.

    Attributes:
        name: Of the step.
        result: ``passed``, ``failed`` or ``left out``.
        seconds: How long it took.
        detail: The last line that it printed, or why it was left out.
        output: All that it printed; the last part, if it is long.
    """

    name: str
    result: str
    seconds: float
    detail: str
    output: str = ""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--out", type=Path, default=ROOT / "build" / "gpu-check", help="where to write the results"
    )
    parser.add_argument(
        "--build", type=Path, default=ROOT / "build" / "gpu-check" / "site", help="where to install"
    )
    parser.add_argument("--wheel", type=Path, help="install this wheel of npu-cuda, and build none")
    parser.add_argument("--only", nargs="+", metavar="STEP", help="of the steps after the build, only these")
    parser.add_argument("--list", action="store_true", help="show the steps and run nothing")
    options = parser.parse_args(arguments)
    gpu = gpu_description()
    steps = planned(options.build, options.out, gpu, options.wheel)
    if unknown := {*(options.only or ())} - {step.name for step in steps}:
        names = ", ".join(step.name for step in steps)
        parser.error(f"{', '.join(sorted(unknown))} is no step: there are {names}")
    if options.only:
        steps = [step for step in steps if step.name in {"build", *options.only}]
    if options.list:
        print("\n".join(f"{step.name}: {' '.join(step.command)}" for step in steps))
        return 0
    options.out.mkdir(parents=True, exist_ok=True)
    register(options.build)
    outcomes = run_all(steps, bool(gpu), environment(options.build))
    report = written(outcomes, gpu, options.out)
    print(report)
    if any(outcome.result == "failed" for outcome in outcomes):
        return 1
    return 0 if gpu else NO_GPU


def gpu_description() -> str:
    """Return name, memory, driver and compute capability of the first GPU; nothing where there is none."""
    query = [
        "nvidia-smi",
        "--query-gpu=name,memory.total,driver_version,compute_cap",
        "--format=csv,noheader",
    ]
    if not shutil.which(query[0]):
        return ""
    found = subprocess.run(query, capture_output=True, text=True, check=False)
    return found.stdout.splitlines()[0] if found.returncode == 0 and found.stdout else ""


def planned(site: Path, out: Path, gpu: str, wheel: Path | None = None) -> list[Step]:
    """Return all steps, in order; with a wheel, the first one installs it."""
    capability = gpu.rpartition(",")[2].strip().replace(".", "") or "90"
    settings = ["cmake.define.NPU_CUDA=ON", f"cmake.define.CMAKE_CUDA_ARCHITECTURES={capability}-real"]
    settings += [f"build-dir={out / 'cmake'}", *split_settings()]
    quiet = ("--no-deps", "--no-build-isolation", "--no-index", "--no-compile", "--upgrade")
    install = (PYTHON, "-m", "pip", "install", *quiet, "--target", str(site))
    words = [word for item in settings for word in ("-C", item)]
    build = (*install, str(wheel)) if wheel else (*install, *words, str(PACKAGE))
    sanitizer = shutil.which("compute-sanitizer") or shutil.which(NVCC.with_name("compute-sanitizer"))
    check = (sanitizer or "compute-sanitizer", "--error-exitcode", "9", "--tool")
    probe = (PYTHON, "-m", "npu_cuda.probe")
    # What the other tests share (tests/conftest.py) needs packages that are not needed here.
    pytest = (PYTHON, "-m", "pytest", "-p", "no:cacheprovider", "-q")
    op_tests = (*pytest, *processes(), "--hypothesis-profile", "ci", "--confcutdir")
    gpu_tests = (*pytest, "-m", "gpu", "-s", "--confcutdir")
    absence = absence_of_sanitizer(sanitizer)

    def bench(name: str) -> tuple[str, ...]:
        return PYTHON, f"benchmarks/{name}.py", "--json", str(out / f"{name.removeprefix('cuda_')}.json")

    return [
        Step("build", build, 240, needs_gpu=False),
        Step("status", (PYTHON, "-c", "import npu_cuda; print(npu_cuda.status())"), 30, needs_gpu=False),
        Step("ops", (*op_tests, str(TESTS), *OP_TESTS), 240),
        Step("tests", (*gpu_tests, str(GPU_TESTS), str(GPU_TESTS)), 180),
        Step("training", (*gpu_tests, str(TRAINING_TESTS), str(TRAINING_TESTS)), 90),
        Step("memcheck", (*check, "memcheck", *probe, *SANITIZED, "--device", "cuda"), 90, absence=absence),
        Step("racecheck", (*check, "racecheck", *probe, "gemm", "--device", "cuda"), 60, absence=absence),
        Step("kernels", (*bench("cuda_kernels"), "--seconds", "80"), 100),
        Step("models", (*bench("cuda_models"), "--seconds", "90"), 120),
    ]  # fmt: skip


def processes() -> tuple[str, ...]:
    """Return the options of pytest for several processes; none without pytest-xdist."""
    if not importlib.util.find_spec("xdist"):
        return ()
    return "-n", str(min(os.cpu_count() or 1, MOST_PROCESSES)), "--dist", "worksteal"


def absence_of_sanitizer(command: str | None) -> str:
    """Return why the sanitizer cannot be used here; empty if it can. Some container runtimes refuse it."""
    if not command:
        return "there is no compute-sanitizer"
    check = [command, PYTHON, "-c", "import torch; torch.zeros(1, device='cuda')"]
    try:
        tried = subprocess.run(
            check, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"compute-sanitizer does not run here: {error}"
    output = tried.stdout.decode(errors="replace")
    refusals = [line.strip("= ") for line in output.splitlines() if "Device not supported" in line]
    return f"compute-sanitizer refuses the device: {refusals[0]}" if refusals else ""


def split_settings() -> list[str]:
    """Return build settings without nanobind's run-time part where it is absent: for this Python only."""
    if importlib.util.find_spec("nanobind_backend"):
        return []
    return ["cmake.define.NPU_SPLIT=OFF", "wheel.py-api="]


def register(site: Path) -> None:
    """Let the other packages, run from their sources, be found as plugins by their entry points."""
    import tomllib  # from Python 3.11 on

    for name in OTHERS:
        project = tomllib.loads((ROOT / "packages" / name / "pyproject.toml").read_text())["project"]
        folder = site / f"{name.replace('-', '_')}-0.dist-info"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0\n")
        groups = [
            "\n".join([f"[{group}]", *(f"{key} = {place}" for key, place in entries.items())])
            for group, entries in project["entry-points"].items()
        ]
        (folder / "entry_points.txt").write_text("\n\n".join(groups) + "\n")


def environment(site: Path) -> dict[str, str]:
    """Return the environment variables that locate nvcc, the build, and the sources of the packages."""
    sources = [str(ROOT / "packages" / name / "src") for name in OTHERS]
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join([str(site), *sources, str(ROOT)])}
    if not shutil.which("nvcc") and NVCC.exists():
        variables.setdefault("CUDACXX", str(NVCC))
    return variables


def run_all(
    steps: Sequence[Step], has_gpu: bool, variables: Mapping[str, str], seconds: float = TOTAL_SECONDS
) -> list[Outcome]:
    """Run steps one after the other, all of them in so many seconds; where the build fails, nothing more."""
    end = time.perf_counter() + seconds
    outcomes: list[Outcome] = []
    for step in steps:
        reason = step.absence or ("" if has_gpu or not step.needs_gpu else "there is no GPU")
        if any(outcome.result == "failed" and outcome.name == "build" for outcome in outcomes):
            reason = "the build failed"
        limit = min(step.limit, end - time.perf_counter())
        outcome = Outcome(step.name, "left out", 0.0, reason) if reason else run(step, limit, variables)
        print(f"{outcome.name}: {outcome.result} ({outcome.seconds:.0f} s) {outcome.detail}", flush=True)
        outcomes.append(outcome)
    return outcomes


def run(step: Step, limit: float, variables: Mapping[str, str]) -> Outcome:
    """Run one step for at most ``limit`` seconds."""
    start = time.perf_counter()
    try:
        done = subprocess.run(
            step.command,
            cwd=ROOT,
            env=dict(variables),
            timeout=max(limit, 0),
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
    except subprocess.TimeoutExpired as error:
        seen = (error.stdout or b"").decode(errors="replace")[-MOST_TEXT:]
        seconds = time.perf_counter() - start
        return Outcome(step.name, "failed", seconds, f"stopped after {limit:.0f} s", seen)
    text = done.stdout.decode(errors="replace")
    last = next((line for line in reversed(text.splitlines()) if line.strip()), "")
    result = "passed" if done.returncode == 0 else "failed"
    return Outcome(step.name, result, time.perf_counter() - start, last.strip(), text[-MOST_TEXT:])


def written(outcomes: Sequence[Outcome], gpu: str, out: Path) -> str:
    """Write everything as files and return the table."""
    head = f"{date.today()}, {gpu or 'no GPU'}, Python {platform.python_version()}, {platform.machine()}"
    rows = [f"| {item.name} | {item.result} | {item.seconds:.0f} | {item.detail} |" for item in outcomes]
    report = "\n".join([head, "", "| step | result | seconds | |", "|---|---|---:|---|", *rows])
    (out / "report.md").write_text(report + "\n")
    details = {"machine": head, "steps": [asdict(outcome) for outcome in outcomes]}
    (out / "report.json").write_text(json.dumps(details, indent=1) + "\n")
    for outcome in outcomes:
        if outcome.output:
            (out / f"{outcome.name}.log").write_text(outcome.output)
    return report


if __name__ == "__main__":
    sys.exit(main())
