"""Kernels run on the CPU as CUDA has them run: the same results, under every order of threads and blocks."""

import ctypes

import numpy as np

from tests.support.emulator.library import Emulator


def test_sums_by_shuffles_and_shared_memory_are_those_of_numpy(emulator: Emulator) -> None:
    for threads in [32, 96, 1024]:
        for _ in emulator.schedules():
            x = np.random.default_rng(0).integers(-9, 9, (5, 333)).astype(np.float32)
            y = np.full(5, np.nan, np.float32)

            assert emulator.run("row_sums", None, threads, x, y, 5, 333) == ""

            np.testing.assert_array_equal(y, x.sum(axis=1))


def test_half_and_bfloat16_are_those_of_cuda(emulator: Emulator) -> None:
    x = np.arange(-50, 50, dtype=np.float32).reshape(2, 50) / 4
    y = np.full((2, 2), np.nan, np.float32)

    emulator.run("row_sums_f16", None, x.astype(np.float16), y[0], 2, 50)
    emulator.run("row_sums_bf16", None, (x.view(np.uint32) >> 16).astype(np.uint16), y[1], 2, 50)

    np.testing.assert_array_equal(y, [x.sum(axis=1)] * 2)


def test_vector_loads_and_scalar_arguments_work(emulator: Emulator) -> None:
    x = np.arange(400, dtype=np.float32)
    y = np.full_like(x, np.nan)

    assert emulator.run("scale", None, x, y, np.float32(2.5), 400) == ""

    np.testing.assert_array_equal(y, x * 2.5)


def test_dynamic_shared_memory_is_shared(emulator: Emulator) -> None:
    for _ in emulator.schedules():
        x = np.arange(256, dtype=np.float32)
        y = np.full_like(x, np.nan)

        assert emulator.run("reverse", None, 256, 1024, x, y) == ""

        np.testing.assert_array_equal(y, x[::-1])


def test_warp_functions_return_what_cuda_documents(emulator: Emulator) -> None:
    for _ in emulator.schedules():
        out = np.zeros((32, 10), np.int32)
        lane = np.arange(32)

        assert emulator.run("warp_functions", None, out) == ""

        ballot, any_, all_, shfl, up, down, xor, match, add, count = out.T
        assert set(ballot) == {np.uint32(sum(1 << i for i in range(0, 32, 3))).astype(np.int32)}
        assert set(any_) == {1}
        assert set(all_) == {0}
        np.testing.assert_array_equal(shfl, lane // 8 * 8 + 5)
        np.testing.assert_array_equal(up, np.where(lane < 3, lane, lane - 3))
        np.testing.assert_array_equal(down, np.where(lane % 16 < 13, lane + 3, lane))
        np.testing.assert_array_equal(xor, lane ^ 9)
        np.testing.assert_array_equal(match.astype(np.uint32), np.uint32(15) << np.uint32(lane // 4 * 4))
        assert set(add) == {496}
        assert set(count) == {9}


def test_parts_of_a_warp_that_name_themselves_may_diverge(emulator: Emulator) -> None:
    for _ in emulator.schedules():
        out = np.zeros(32, np.int32)

        assert emulator.run("half_warps", None, out) == ""

        assert list(out) == [120] * 16 + [31] * 16


def test_atomics_lose_nothing(emulator: Emulator) -> None:
    for _ in emulator.schedules():
        x = np.random.default_rng(1).integers(0, 7, 250).astype(np.int32)
        counts, maximum = np.zeros(7, np.int32), np.zeros(1, np.float32)

        assert emulator.run("histogram", None, x, counts, maximum, 250) == ""

        np.testing.assert_array_equal(counts, np.bincount(x, minlength=7))
        assert maximum[0] == 6


def test_loops_that_wait_for_a_lock_end(emulator: Emulator) -> None:
    for _ in emulator.schedules():
        lock, count = np.zeros(1, np.int32), np.zeros(1, np.int32)

        assert emulator.run("count_under_lock", None, lock, count) == ""

        assert count[0] == 192


def test_indices_have_three_dimensions(emulator: Emulator) -> None:
    out = [np.full((2, 24), np.nan, np.float32) for _ in range(4)]

    assert emulator.run("fill_indices", None, *out) == ""

    for array in out:
        np.testing.assert_array_equal(array, [np.arange(24)] * 2)


def test_what_nobody_wrote_is_nan(emulator: Emulator) -> None:
    memory = emulator.create("cudaMalloc", ctypes.c_size_t(4))
    out = np.zeros(4, np.float32)

    assert emulator.run("read_undefined", None, memory, out) == ""
    emulator.check("cudaFree", memory)

    assert np.isnan(out).all(), out


def test_shapes_beyond_the_limits_are_refused(emulator: Emulator) -> None:
    text = "cudaLaunchKernelEx: cudaErrorInvalidConfiguration (9): invalid configuration argument"
    for shape in ((0, 32, 1), (65536, 32, 1), (1, 0, 1), (1, 1025, 1), (1, 512, 3), (1, 1, 65)):
        assert emulator.run("shape", *shape) == text, shape


def test_more_than_48_kib_of_shared_memory_are_asked_for_first(emulator: Emulator) -> None:
    x = np.arange(32, dtype=np.float32)
    y = np.full_like(x, np.nan)
    emulator.library.address_of_reverse.restype = ctypes.c_void_p
    kernel = ctypes.c_void_p(emulator.library.address_of_reverse())

    assert "cudaErrorInvalidValue" in emulator.run("reverse", None, 32, 50 << 10, x, y)
    assert emulator("cudaFuncSetAttribute", kernel, 8, 300 << 10) == "cudaErrorInvalidValue"
    emulator.check("cudaFuncSetAttribute", kernel, 8, 50 << 10)
    assert emulator.run("reverse", None, 32, 50 << 10, x, y) == ""

    np.testing.assert_array_equal(y, x[::-1])
