"""Builds of npu-cuda in every mode, warnings being errors, with their checks; ``nox -s native`` runs it.

    off      the host alone                              some tests
    on       nvcc, for every architecture of a release   registers and spills, symbols, size
    wide     CUDA on the CPU, with AddressSanitizer      the tests that use devices

and, when it is asked for,

    quick    on, hardly optimized                        symbols
    asan     wide, likewise, without AVX2 and AVX-512    the tests that use devices
    emulate  wide without AddressSanitizer               the tests that use devices


It needs what builds and tests the package in the environment of the Python that runs it. Where CMake finds
no nvcc, or no headers of CUDA, modes are left out, which is said at the end; with ``--require-nvcc`` that
is an error.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import kernel_resources
from wheel_checks import MAX_WHEEL_BYTES

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "packages" / "npu-cuda"
TESTS = ROOT / "tests" / "npu_cuda"
FOLDER = ROOT / "build" / "native"
DEFINES = {
    # Without -g; and a missing #include is an error.
    "off": {"NPU_CUDA": "OFF", "NPU_UNITY": "OFF", "CMAKE_CXX_FLAGS_DEBUG": "-O0"},
    "on": {"NPU_CUDA": "ON", "NPU_PTXAS_VERBOSE": "ON"},
    "quick": {"NPU_CUDA": "ON", "NPU_QUICK": "ON"},
    "wide": {"NPU_CUDA": "EMULATE", "NPU_ASAN": "ON"},
    "emulate": {"NPU_CUDA": "EMULATE"},
}
DEFINES["asan"] = DEFINES["wide"] | {"NPU_NARROW": "ON", "NPU_QUICK": "ON"}
USUAL = ("off", "on", "wide")
TYPES = {"off": "Debug"}  # it builds quickest, and `on` has the same code optimized
# Of the tests in tests/npu_cuda: ``nox -s tests`` runs all of them, with the build that fits the machine.
# Without a GPU that is one for the host; what is run in a mode here is what the mode changes.
HOST_TESTS = ("bindings/test_calls.py", "core/test_programs.py", "test_packaging.py", "test_plugin.py")
DEVICE_TESTS = (
    "backend/test_*.py",
    "bindings/test_calls.py",
    "bindings/test_gil.py",
    "bindings/test_streams.py",
    "core/test_library.py",
    "core/test_planner.py",
    "core/test_programs.py",
    "ops/test_*.py",
)
# Of these, what has no access to memory that others lack, and runs in ``nox -s tests`` likewise: the lock
# of Python, texts for nvcc, a program that is compiled without the sanitizer, how long planning takes.
NOT_OF_MEMORY = (
    "bindings/test_gil.py::test_other_threads_run_during_a_launch[host]",
    "bindings/test_gil.py::test_other_threads_run_while_a_graph_is_recorded[host]",
    "core/test_planner.py::test_the_edges_of_ten_thousand_ops_are_found_at_once",
    "ops/test_chain_text.py::test_texts_compile_for_gpus",
    "ops/test_threads.py::test_what_a_part_throws_is_thrown_when_all_parts_have_ended",
)
# How CMake says that a tool is not installed; one that is there and does not work is another matter.
ABSENT = re.compile(r"(nvcc|cuda_runtime_api\.h)\s+was\s+not\s+found")


class BuildError(Exception):
    """A problem of a build, described by its text."""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("modes", nargs="*", help=f"of {', '.join(DEFINES)}; without: {', '.join(USUAL)}")
    parser.add_argument(
        "--update", action="store_true", help="write kernel-resources.txt instead of comparing"
    )
    parser.add_argument(
        "--require-nvcc",
        action="store_true",
        default=os.environ.get("NPU_REQUIRE_NVCC") == "1",
        help="fail where nvcc is not found; likewise NPU_REQUIRE_NVCC=1",
    )
    options = parser.parse_args()
    if unknown := set(options.modes) - set(DEFINES):
        parser.error(f"{', '.join(sorted(unknown))} is no mode: there are {', '.join(DEFINES)}")
    failed, absent = [], []
    for mode in options.modes or USUAL:
        try:
            check(mode, options)
        except BuildError as failure:
            print(f"{mode}: {failure}", flush=True)
            (absent if ABSENT.search(str(failure)) else failed).append(mode)
    if absent:
        line = (
            f"NOT BUILT AND NOT CHECKED: {', '.join(absent)}. They need nvcc, or at "
            "least the headers of CUDA 13."
        )
        print(f"{'=' * 100}\n{line}\n{'=' * 100}")
    if options.require_nvcc:
        failed += absent
    print(f"native builds: {'all well' if not failed else 'FAILED: ' + ', '.join(failed)}")
    return 1 if failed else 0


def check(mode: str, options: argparse.Namespace) -> None:
    """Build and check in one mode; print how long it took.

    Raises:
        BuildError: It does not build, or is not what it should be.
    """
    start = time.perf_counter()
    log = build(mode)
    built = time.perf_counter()
    CHECKS[mode](mode, log, options)
    size = wheel(mode).stat().st_size / 1000
    seconds = f"built in {built - start:.1f} s, checked in {time.perf_counter() - built:.1f} s"
    print(f"{mode}: {seconds}, wheel of {size:.0f} kB", flush=True)


def build(mode: str) -> str:
    """Build a wheel from scratch, install it into a separate folder, and return the output of the tools."""
    folder = FOLDER / mode
    shutil.rmtree(folder, ignore_errors=True)
    defines = {**DEFINES[mode], "NPU_WERROR": "ON"}
    if ccache := shutil.which("ccache"):
        defines |= {"CMAKE_CXX_COMPILER_LAUNCHER": ccache, "CMAKE_CUDA_COMPILER_LAUNCHER": ccache}
    settings = [
        f"build-dir={folder}/cmake",
        f"cmake.build-type={TYPES.get(mode, 'Release')}",
        *(f"cmake.define.{name}={text}" for name, text in defines.items()),
    ]
    words = [word for setting in settings for word in ("-C", setting)]
    pip = (sys.executable, "-m", "pip")
    quiet = ("--no-deps", "--no-index")
    log = run(*pip, "wheel", "-v", "--no-build-isolation", *quiet, *words, "-w", str(folder), str(PACKAGE))
    run(*pip, "install", "-q", *quiet, "--target", str(folder / "site"), str(wheel(mode)))
    return log


def wheel(mode: str) -> Path:
    (path,) = (FOLDER / mode).glob("*.whl")
    return path


def run_tests(mode: str, patterns: tuple[str, ...], left_out: tuple[str, ...] = (), **env: str) -> None:
    """Run tests, but for those left out, with the package of this mode before any other installed one."""
    environment = {
        "PYTHONPATH": str(FOLDER / mode / "site"),
        "NPU_CUDA_EXPECTED_MODE": DEFINES[mode]["NPU_CUDA"],
        "NPU_CUDA_EXPECTED_TYPE": TYPES.get(mode, "Release"),
        **env,
    }
    files = [sorted(TESTS.glob(pattern)) for pattern in patterns]
    assert all(files), f"there are no tests {patterns[files.index([])]}"
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "worksteal", "--durations=5"]
    for item in left_out:
        path, _, name = item.partition("[")[0].partition("::")
        assert f"def {name or 'test_'}" in (TESTS / path).read_text(), f"there is no test {item}"
        command += ["--deselect", str((TESTS / path).relative_to(ROOT)) + item[len(path) :]]
    command += [str(path) for found in files for path in found]
    if subprocess.run(command, cwd=ROOT, env=os.environ | environment, check=False).returncode:
        raise BuildError("tests failed")


def check_host(mode: str, _log: str, _options: argparse.Namespace) -> None:
    run_tests(mode, HOST_TESTS)


def check_devices(mode: str, _log: str, _options: argparse.Namespace) -> None:
    run_tests(mode, DEVICE_TESTS)


def check_memory(mode: str, _log: str, _options: argparse.Namespace) -> None:
    """Run the tests that launch kernels where every access outside of a buffer ends the process."""
    # libstdc++, too: the sanitizer looks for the functions of exceptions when it starts, and python has none.
    libraries = [run("g++", f"-print-file-name={name}").strip() for name in ("libasan.so", "libstdc++.so.6")]
    # To a file: what the process prints while pytest captures its output ends with it.
    reports = FOLDER / mode / "report"
    options = f"detect_leaks=0:detect_stack_use_after_return=0:log_path={reports}"
    try:
        run_tests(mode, DEVICE_TESTS, NOT_OF_MEMORY, LD_PRELOAD=" ".join(libraries), ASAN_OPTIONS=options)
    except BuildError as failure:
        texts = [path.read_text()[:2000] for path in sorted(reports.parent.glob(f"{reports.name}.*"))]
        raise BuildError("\n".join([*texts, str(failure)])) from failure


def check_cuda(mode: str, log: str, options: argparse.Namespace) -> None:
    """Compare the resources of kernels, and check the library built by nvcc."""
    wrong = kernel_resources.problems(kernel_resources.read_log(log), log, update=options.update)
    if (size := wheel(mode).stat().st_size) > MAX_WHEEL_BYTES:
        wrong.append(f"the wheel has {size} bytes; at most {MAX_WHEEL_BYTES} are allowed")
    if wrong:
        raise BuildError("\n".join(wrong))
    check_package(mode, log, options)


def check_package(mode: str, _log: str, _options: argparse.Namespace) -> None:
    run_tests(mode, ("test_packaging.py",))  # ``nox -s tests`` runs the others with this very build


CHECKS: dict[str, Callable[[str, str, argparse.Namespace], None]] = {
    "off": check_host,
    "emulate": check_devices,
    "asan": check_memory,
    "wide": check_memory,
    "on": check_cuda,
    "quick": check_package,
}


def run(*command: str) -> str:
    """Return the output of a command; raise BuildError with it if the command failed."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise BuildError(f"{' '.join(command)}\n{done.stdout}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
