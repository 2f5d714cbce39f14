"""Build npu-cuda in every mode, warnings being errors, and check what each is for; ``nox -s native`` runs it.

    off      the host alone                              all its tests
    emulate  CUDA kernels on the CPU                     all its tests
    asan     the same with AddressSanitizer              the tests that run kernels
    on       nvcc, for every architecture of a release   registers and spills, symbols, size

It needs what builds and tests the package in the environment of the Python that runs it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import kernel_resources

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "packages" / "npu-cuda"
TESTS = ROOT / "tests" / "npu_cuda"
FOLDER = ROOT / "build" / "native"
MOST_BYTES = 2_000_000  # of a wheel with the architectures of a release
DEFINES = {
    "off": {"NPU_CUDA": "OFF"},
    "emulate": {"NPU_CUDA": "EMULATE"},
    "asan": {"NPU_CUDA": "EMULATE", "NPU_ASAN": "ON"},
    "on": {"NPU_CUDA": "ON", "NPU_PTXAS_VERBOSE": "ON"},
}


# Tests that run kernels, programs and graphs in this library; those of the emulator build one of their own.
MEMORY_TESTS = ("test_*probe*.py", "test_graph.py", "test_library.py", "test_op_call*.py", "test_program*.py")


class BuildError(Exception):
    """Something that is wrong with a build; the text says what."""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("modes", nargs="*", help=f"of {', '.join(DEFINES)}; all without")
    parser.add_argument(
        "--update", action="store_true", help="write kernel-resources.txt instead of comparing"
    )
    parser.add_argument("--require-nvcc", action="store_true", help="fail where nvcc is not found")
    options = parser.parse_args()
    if unknown := set(options.modes) - set(DEFINES):
        parser.error(f"{', '.join(sorted(unknown))} is no mode: there are {', '.join(DEFINES)}")
    failed = [mode for mode in options.modes or DEFINES if not passes(mode, options)]
    print(f"native builds: {'all well' if not failed else 'FAILED: ' + ', '.join(failed)}")
    return 1 if failed else 0


def passes(mode: str, options: argparse.Namespace) -> bool:
    """Build and check in one mode; print what came of it."""
    if mode == "on" and not (shutil.which(os.environ.get("CUDACXX", "nvcc"))):
        print(
            "=" * 100,
            "\nNO NVCC: the CUDA kernels were NOT compiled. Put nvcc on PATH or set CUDACXX.\n",
            "=" * 100,
        )
        return not options.require_nvcc
    start = time.perf_counter()
    try:
        log = build(mode)
        built = time.perf_counter()
        CHECKS[mode](mode, log, options)
    except BuildError as failure:
        print(f"{mode}: {failure}")
        return False
    size = wheel(mode).stat().st_size / 1000
    seconds = f"built in {built - start:.1f} s, checked in {time.perf_counter() - built:.1f} s"
    print(f"{mode}: {seconds}, wheel of {size:.0f} kB", flush=True)
    return True


def build(mode: str) -> str:
    """Build a wheel from scratch, install it into a folder of its own, and return what the tools printed."""
    folder = FOLDER / mode
    shutil.rmtree(folder, ignore_errors=True)
    defines = {**DEFINES[mode], "NPU_WERROR": "ON"}
    if ccache := shutil.which("ccache"):
        defines |= {"CMAKE_CXX_COMPILER_LAUNCHER": ccache, "CMAKE_CUDA_COMPILER_LAUNCHER": ccache}
    settings = [
        f"build-dir={folder}/cmake",
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


def run_tests(mode: str, *arguments: str, **env: str) -> None:
    """Run pytest with the package of this mode before any other that is installed."""
    environment = {
        "PYTHONPATH": str(FOLDER / mode / "site"),
        "NPU_CUDA_EXPECTED_MODE": DEFINES[mode]["NPU_CUDA"],
        **env,
    }
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", *arguments]
    if subprocess.run(command, cwd=ROOT, env=os.environ | environment, check=False).returncode:
        raise BuildError("tests failed")


def check_tests(mode: str, _log: str, _options: argparse.Namespace) -> None:
    run_tests(mode, str(TESTS))


def check_memory(mode: str, _log: str, _options: argparse.Namespace) -> None:
    """Run the tests that launch kernels where every access outside of a buffer ends the process."""
    # libstdc++, too: the sanitizer looks for the functions of exceptions when it starts, and python has none.
    libraries = [run("g++", f"-print-file-name={name}").strip() for name in ("libasan.so", "libstdc++.so.6")]
    options = "detect_leaks=0:detect_stack_use_after_return=0"
    files = [str(path) for pattern in MEMORY_TESTS for path in sorted(TESTS.glob(pattern))]
    run_tests(mode, *files, LD_PRELOAD=" ".join(libraries), ASAN_OPTIONS=options)


def check_cuda(mode: str, log: str, options: argparse.Namespace) -> None:
    """Compare what kernels use, and look at the library that nvcc made."""
    wrong = kernel_resources.problems(kernel_resources.read_log(log), log, update=options.update)
    if (size := wheel(mode).stat().st_size) > MOST_BYTES:
        wrong.append(f"the wheel has {size} bytes; at most {MOST_BYTES} are allowed")
    if wrong:
        raise BuildError("\n".join(wrong))
    run_tests(mode, str(TESTS / "test_packaging.py"), str(TESTS / "test_build_rules.py"))


CHECKS: dict[str, Callable[[str, str, argparse.Namespace], None]] = {
    "off": check_tests,
    "emulate": check_tests,
    "asan": check_memory,
    "on": check_cuda,
}


def run(*command: str) -> str:
    """Return what a command printed; raises BuildError with it where the command failed."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise BuildError(f"{' '.join(command)}\n{done.stdout}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
