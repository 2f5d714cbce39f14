"""The trace: the last launches, in a ring of fixed size."""

import io
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

import npu_cuda
from npu_cuda import _C
from npu_cuda.errors import NotSupportedError, UnavailableError
from tests.support.cuda.programs import refused, registered

RELU = _C.OpKind.EltwiseRelu


@pytest.fixture(autouse=True)
def _stopped() -> Iterator[None]:
    yield
    npu_cuda.trace_stop()


def relu(*shape: int, dtype: torch.dtype = torch.float32) -> None:
    x = torch.zeros(*shape, dtype=dtype)
    npu_cuda.op_call(RELU, [x], [x])


def test_each_launch_is_written_down() -> None:
    npu_cuda.trace_start()
    relu(1)
    npu_cuda.trace_start()  # drops what was there
    relu(2, 3)
    relu(5, dtype=torch.bfloat16)
    npu_cuda.trace_stop()
    relu(7)

    first, second = npu_cuda.trace_events()

    assert (first["number"], second["number"]) == (0, 1)
    assert (first["op"], first["kind"], first["status"]) == ("EltwiseRelu", 1, "Ok")
    assert first["kernel_id"] in {kernel["id"] for kernel in _C.kernels(RELU)}
    assert first["tensors"] == "(float32[2, 3]) -> float32[2, 3]"
    assert second["tensors"] == "(bfloat16[5]) -> bfloat16[5]"
    assert first["stream"] != 0
    assert 0 <= first["duration_ns"] <= second["start_ns"] - first["start_ns"]


def test_a_launch_that_fails_is_in_it_and_none_that_is_refused_before() -> None:
    npu_cuda.trace_start()

    with pytest.raises(NotSupportedError, match="no kernel of EltwiseRelu on host takes"):
        relu(2, dtype=torch.complex64)
    assert npu_cuda.trace_events() == []

    with (
        registered(lambda call: 1 / 0, kernel_id="trace.fails"),  # type: ignore[arg-type, return-value]
        pytest.raises(ZeroDivisionError, match="division by zero"),
    ):
        relu(2)
    (event,) = npu_cuda.trace_events()
    assert (event["kernel_id"], event["status"]) == ("trace.fails", "Internal")


def test_the_ring_keeps_the_last_launches_of_all_threads() -> None:
    npu_cuda.trace_start(capacity=50)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: relu(300, 300), range(97)))
    for size in range(3):
        relu(size)

    events = npu_cuda.trace_events()
    assert [event["number"] for event in events] == list(range(50, 100))
    assert [event["tensors"] for event in events[-3:]] == [
        f"(float32[{i}]) -> float32[{i}]" for i in range(3)
    ]


def test_a_capacity_that_cannot_be_is_refused() -> None:
    for capacity in [0, -1, 1 << 30]:
        with refused(f"trace_start: a capacity of {capacity} launches; 1 to 16777216"):
            npu_cuda.trace_start(capacity)


def test_ranges_for_profilers_need_a_build_with_cuda() -> None:
    if npu_cuda.build_info()["mode"] == "OFF":
        with refused("trace_start: this build has no NVTX: it is built without CUDA", UnavailableError):
            npu_cuda.trace_start(nvtx=True)
        return

    npu_cuda.trace_start(nvtx=True)
    relu(2)

    assert len(npu_cuda.trace_events()) == 1


def test_a_block_prints_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    with npu_cuda.trace() as launches:
        relu(2, 3)
        relu(11)
    relu(1)

    head, first, second = capsys.readouterr().out.splitlines()
    assert head.split() == ["#", "at", "us", "us", "op", "kernel", "tensors"]
    assert first.split()[:2] == ["0", "0.0"]
    assert first.endswith("(float32[2, 3]) -> float32[2, 3]")
    assert second.index("EltwiseRelu") == first.index("EltwiseRelu") == head.index("op")
    assert [launch["number"] for launch in launches] == [0, 1]


def test_a_block_that_fails_prints_what_was_launched() -> None:
    text, nothing = io.StringIO(), io.StringIO()

    with pytest.raises(ZeroDivisionError, match="division"), npu_cuda.trace(capacity=1, file=text):  # noqa: PT012
        relu(2)
        relu(3)
        _ = 1 / 0
    with npu_cuda.trace(file=nothing):
        pass

    assert "float32[3]" in text.getvalue()
    assert text.getvalue().endswith("1 launches before these are dropped: give a larger capacity\n")
    assert nothing.getvalue() == "no launches\n"
