"""A pool owns all memory of a captured step: fixed addresses, and nothing is allocated in a capture."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager

import pytest
import torch

from npu_ir import TensorType
from npu_runtime import CaptureError
from npu_runtime.training.capture.buffer_pool import BufferPool
from npu_runtime.training.capture.capture_state import (
    CAPTURING,
    REPLAYING,
    in_capture,
    require_outside_capture,
)

ROWS = TensorType((4, 3), torch.float32)


def pool() -> BufferPool:
    arena = torch.zeros(100, dtype=torch.float32)
    planned = {"x": arena[:12].view(4, 3), "h": arena[16:28].view(3, 4), "h_t": arena[16:28].view(3, 4).t()}
    return BufferPool(planned, torch.device("cpu"))


def test_a_buffer_is_the_same_each_time() -> None:
    buffers = pool()

    assert buffers.get("x") is buffers.get("x", ROWS)
    assert buffers.get("x").data_ptr() == buffers.pointers()["x"]


def test_memory_that_several_share_counts_once() -> None:
    assert pool().nbytes == (12 + 12) * 4


def test_a_buffer_that_is_not_there_is_allocated_by_its_type() -> None:
    buffers = pool()

    made = buffers.get("scratch", TensorType((2, 3), torch.float16, (1, 2)))

    assert (made.shape, made.dtype, made.stride()) == ((2, 3), torch.float16, (1, 2))
    assert buffers.get("scratch") is made
    assert list(buffers) == ["x", "h", "h_t", "scratch"]
    assert buffers.stats().to_dict() == {"planned": 3, "added": 1, "bytes": 24 * 4 + 12, "gets": 2}


def test_a_buffer_that_is_not_there_has_no_type_by_itself() -> None:
    with pytest.raises(CaptureError, match="there is no buffer 'y'(?s:.*)there are x, h, h_t"):
        pool().get("y")
    with pytest.raises(CaptureError, match="there are no buffers"):
        BufferPool({}, torch.device("cpu")).get("y")


def test_a_buffer_of_another_type_is_refused() -> None:
    with pytest.raises(CaptureError, match=r"the buffer 'x' is f32\[4, 3\], not f32\[3, 4\]"):
        pool().get("x", TensorType((3, 4), torch.float32))


@pytest.mark.parametrize("activity", [CAPTURING, REPLAYING], ids=["capture", "replay"])
def test_nothing_is_allocated_in_a_capture(activity: AbstractContextManager[None]) -> None:
    buffers = pool()

    with activity:
        assert buffers.get("x").shape == (4, 3)
        with pytest.raises(CaptureError, match="there is no buffer 'y', and none is allocated in a capture"):
            buffers.get("y", ROWS)
    assert "y" not in buffers


def test_a_pool_is_not_reset_in_a_capture() -> None:
    buffers = pool()
    buffers.get("y", ROWS)

    with CAPTURING, pytest.raises(CaptureError, match=r"BufferPool.reset\(\) is not allowed in a capture"):
        buffers.reset()
    assert "y" in buffers

    buffers.reset()
    assert list(buffers) == ["x", "h", "h_t"]


def test_what_is_held_is_told_without_addresses() -> None:
    assert pool().to_dict() == {"x": "f32[4, 3]", "h": "f32[3, 4]", "h_t": "f32[4, 3]@[1, 4]"}


def test_in_capture_is_true_inside_and_false_after_an_error() -> None:
    assert not in_capture()
    with REPLAYING:
        assert in_capture()
    with pytest.raises(KeyError, match="inside"), CAPTURING:
        raise KeyError("inside")
    assert not in_capture()


def test_a_capture_in_a_capture_is_refused_and_the_outer_one_goes_on() -> None:
    with CAPTURING:
        with pytest.raises(CaptureError, match="a replay is not allowed in a capture"), REPLAYING:
            pass
        assert in_capture()


def test_another_thread_is_in_no_capture() -> None:
    seen = []

    def look() -> None:
        seen.append(in_capture())
        with REPLAYING:
            seen.append(in_capture())

    with CAPTURING:
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
        assert in_capture()

    assert seen == [False, True]


def test_what_must_not_happen_says_what_to_do() -> None:
    require_outside_capture("loading weights")

    with (
        REPLAYING,
        pytest.raises(CaptureError, match="loading weights is not allowed in a replay(?s:.*)has ended"),
    ):
        require_outside_capture("loading weights")
