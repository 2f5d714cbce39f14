"""Each bug that was planted in a kernel is found; the same kernel without it passes."""

import subprocess
from collections.abc import Callable

import numpy as np
import pytest

from tests.support.emulator.building import HERE, program_with_asan, require_compiler, shared_library
from tests.support.emulator.library import SCHEDULES, Emulator
from tests.support.processes import run_python


def line_of(file: str, text: str) -> int:
    return next(i for i, line in enumerate((HERE / file).read_text().splitlines(), 1) if text in line)


def results(emulator: Emulator, run: Callable[[np.ndarray], str], shape: int) -> list[bytes]:
    found = []
    for schedule in SCHEDULES:
        y = np.zeros(shape, np.float32)
        emulator.set_schedule(schedule)
        assert run(y) == ""
        found.append(y.tobytes())
    return found


@pytest.mark.parametrize(
    ("kernel", "size"), [("rotate", 256), ("rotate_twice", 256), ("exchange_in_warp", 32)]
)
def test_a_missing_barrier_shows_as_results_that_depend_on_the_schedule(
    emulator: Emulator, kernel: str, size: int
) -> None:
    x = np.arange(size, dtype=np.float32)

    broken = results(emulator, lambda y: emulator.run(kernel, False, x, y), size)
    repaired = results(emulator, lambda y: emulator.run(kernel, True, x, y), size)

    assert len(set(broken)) > 1
    assert len(set(repaired)) == 1
    assert repaired[0] not in broken  # each order of this kernel is wrong somewhere


def test_an_update_that_is_not_atomic_loses_additions(emulator: Emulator) -> None:
    broken = results(emulator, lambda y: emulator.run("add_up", False, y), 1)
    repaired = results(emulator, lambda y: emulator.run("add_up", True, y), 1)

    assert np.float32(32).tobytes() not in broken
    assert set(repaired) == {np.float32(32).tobytes()}


def test_a_shuffle_of_a_partial_warp_is_refused_with_block_thread_and_line(emulator: Emulator) -> None:
    x, y = np.ones(40, np.float32), np.zeros(1, np.float32)

    assert emulator.run("sum_of_a_full_warp", 8, x, y) == ""  # as on hardware, the launch itself is in order
    error = emulator("cudaStreamSynchronize", None)

    assert error == "cudaErrorLaunchFailure"
    line = line_of("planted_bugs.cu", "sum += __shfl_down_sync")
    assert emulator.report() == (
        "kernel (anonymous namespace)::sum_of_a_full_warp(float const*, float*), block (0,0,0), thread "
        f"(0,0,0): __shfl_down_sync at {HERE}/planted_bugs.cu:{line} names lane 8, but this warp has 8 "
        "threads (a block of 8): launch whole warps, or name the lanes that there are"
    )
    emulator.reset()
    assert emulator.run("sum_of_a_full_warp", 32, x, y) == ""
    emulator.check("cudaStreamSynchronize", None)
    assert y[0] == 32


def test_threads_that_part_at_a_barrier_are_an_error_and_no_hang(emulator: Emulator) -> None:
    cases = [
        ("barrier_that_some_skip", r"waits at __syncthreads \(.*:\d+\), but thread \(\d+,0,0\) has ended"),
        ("barriers_in_two_branches", r"at __syncthreads \(.*\), but thread .* waits at __syncthreads \("),
        ("barrier_against_shuffle",
         r"waits at __shfl_down_sync \(.*, mask 0xffffffff\), but thread .* waits at __sync"),
        ("shuffle_with_lanes_that_ended", r"thread \(\d+,0,0\) has ended"),
        ("mask_without_oneself", r"__shfl_sync at .* does not name lane \d+, which calls it"),
    ]  # fmt: skip
    for kernel, report in cases:
        for _ in emulator.schedules():
            y = np.zeros(64, np.float32)

            assert emulator.run("diverging", kernel.encode(), y) == ""

            assert emulator("cudaDeviceSynchronize") == "cudaErrorLaunchFailure"
            with pytest.raises(AssertionError, match=report):
                raise AssertionError(emulator.report())
            emulator.reset()


def test_a_failed_kernel_fails_every_call_until_the_emulator_is_reset(emulator: Emulator) -> None:
    x = np.full(32, -1, np.float32)
    memory = emulator.create("cudaMalloc", 64)

    emulator.run("trap", x)

    assert emulator("cudaGetLastError") == "cudaErrorLaunchFailure"
    assert emulator("cudaGetLastError") == "cudaErrorLaunchFailure"  # it stays
    text = emulator.run("trap", np.abs(x))
    assert text.startswith(
        "cudaLaunchKernelEx: cudaErrorLaunchFailure (719): unspecified launch failure: kernel "
    )
    assert text.endswith("trap_where_negative(float const*), block (0,0,0), thread (0,0,0): __trap()")
    assert emulator("cudaFree", memory) == "cudaErrorLaunchFailure"
    assert emulator.live("allocation") == 0

    emulator.reset()
    assert emulator.run("trap", np.abs(x)) == ""
    emulator.check("cudaDeviceSynchronize")


def run_with_asan(bug: str) -> subprocess.CompletedProcess[str]:
    require_compiler()
    program = program_with_asan("out_of_bounds.cu")
    options = {"ASAN_OPTIONS": "detect_leaks=0:detect_stack_use_after_return=0:abort_on_error=0"}
    return subprocess.run(
        [program, bug], capture_output=True, text=True, check=False, env=options, timeout=120
    )


def test_an_access_out_of_bounds_is_found_with_its_line() -> None:
    cases = [
        ("out_of_device_memory", "heap-buffer-overflow"),
        ("out_of_shared_memory", "global-buffer-overflow"),
        ("out_of_dynamic_shared_memory", "heap-buffer-overflow"),
        ("out_of_local_memory", "stack-buffer-overflow"),
        ("stack_overflow", "stack-overflow"),
        ("use_after_free", "heap-use-after-free"),
    ]  # fmt: skip
    for bug, kind in cases:
        line = line_of("out_of_bounds.cu", bug)

        result = run_with_asan(bug)

        assert result.returncode != 0
        assert f"AddressSanitizer: {kind}" in result.stderr, result.stderr
        assert f"out_of_bounds.cu:{line}" in result.stderr, result.stderr


def test_kernels_that_stay_inside_pass_under_the_sanitizer() -> None:
    result = run_with_asan("none")

    assert (result.returncode, result.stdout) == (0, "ended: \n"), result.stderr


def test_a_stack_that_overflows_ends_the_process_without_the_sanitizer_too() -> None:
    require_compiler()
    library = shared_library("kernels.cu", "planted_bugs.cu")
    load = f"import ctypes, sys; overflow = ctypes.CDLL({str(library)!r}).run_overflow;"
    script = f"{load} overflow((ctypes.c_float * 1)(), int(sys.argv[1])); print('ended')"

    deep, shallow = run_python(script, "100"), run_python(script, "1")

    assert (deep.returncode, deep.stdout) == (-11, "")
    assert shallow.stdout == "ended\n", shallow.stderr
