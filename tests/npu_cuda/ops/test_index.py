"""Indices outside of their axis, on the host and on the emulated device, and threads."""

import subprocess
import sys

import pytest
import torch

import npu_cuda
from npu_cuda import _C, attrs
from npu_cuda.errors import InvalidArgumentError

OUTSIDE_ON_CUDA = """
from npu_cuda import _C, attrs
from npu_cuda.errors import DeviceError

inputs = [_C.empty((4, 6), "float32", "cuda:0"), _C.empty((3,), "int64", "cuda:0")]
inputs[1].copy_from((b"\\x01" + b"\\0" * 7) * 2 + b"\\x04" + b"\\0" * 7)
try:
    _C.op_call(_C.kinds()["IndexSelect"], inputs, [_C.empty((3, 6), "float32", "cuda:0")])
    _C.synchronize("cuda")
except DeviceError as error:
    print(error)
"""


def call(
    name: str, inputs: list[torch.Tensor], output: torch.Tensor, *given: object, **fields: int
) -> torch.Tensor:
    npu_cuda.op_call(npu_cuda.kinds()[name], inputs, [output], *(attrs(*given, **fields) if given else ()))
    return output


@pytest.mark.parametrize(("name", "inputs", "fields", "message"), [
    ("IndexSelect", ["x", [1, 4, 9]], {}, r"index 4, at place 1 of .* not inside axis 0 of size 4"),
    ("IndexSelect", ["x", [1, -1]], {}, r"index -1, at place 1 .* axis 0 of size 4"),
    ("IndexSelect", ["x", [1, -5]], {"wrap": 1}, r"index -5, at place 1 .* axis 0 of size 4"),
    ("IndexPut", ["x", "x", [0, 1, 2, 4]], {}, r"index 4, at place 3 .* axis 0 of size 4"),
    ("EmbeddingBwd", ["x", [0, 1, 2, 7]], {}, r"index 7, at place 3 .* axis 0 of size 4"),
    ("Gather", ["x", [[0, 6]] * 4], {"axis": 1}, r"index 6, at place 1 .* axis 1 of size 6"),
    ("Scatter", ["x", [[0, -2]], "x"], {"axis": 1}, r"index -2, at place 1 .* axis 1 of size 6"),
    ("OneHot", [[0, 3]], {}, r"index 3, at place 1 .* axis 1 of size 3"),
])  # fmt: skip
def test_an_index_outside_is_refused_before_anything_is_written(
    name: str, inputs: list[object], fields: dict[str, int], message: str
) -> None:
    tensors = [torch.ones(4, 6) if item == "x" else torch.tensor(item) for item in inputs]
    shapes = {"Gather": (4, 2), "OneHot": (2, 3), "IndexSelect": (*tensors[-1].shape, 6)}
    output = torch.full(shapes.get(name, (4, 6)), 7).to(torch.int64 if name == "OneHot" else torch.float32)
    schema = next(op["schema"] for op in npu_cuda.ops() if op["name"] == name)

    with pytest.raises(InvalidArgumentError, match=message):
        call(name, tensors, output, *([schema] if fields else []), **fields)

    assert bool((output == 7).all())


@pytest.mark.skipif(_C.build_info()["mode"] != "EMULATE", reason="it would end the use of a real device")
def test_an_index_outside_stops_the_device() -> None:
    result = subprocess.run(
        [sys.executable, "-c", OUTSIDE_ON_CUDA], capture_output=True, text=True, check=True, timeout=60
    )

    assert "__trap()" in result.stdout


@pytest.mark.usefixtures("threads")
def test_threads_do_not_change_a_bit() -> None:
    torch.manual_seed(0)
    index, values = torch.randint(0, 900, (90_000,)), torch.randn(90_000, 3)
    rows, target = torch.randn(200, 700), torch.zeros(900, 3)
    results = []
    for count in (1, 3):
        _C.set_thread_count(count)
        added = call("IndexPut", [target, values, index], torch.empty(900, 3), "IDXP", accumulate=1)
        spread = index[:, None].expand(-1, 3).contiguous()
        scattered = call("Scatter", [target, spread, values], torch.empty(900, 3), "SCAT", accumulate=1)
        taken = call("IndexSelect", [added, index], torch.empty(90_000, 3))
        found = [torch.empty(200, 700), torch.empty(200, 700, dtype=torch.int64)]
        npu_cuda.op_call(npu_cuda.kinds()["Sort"], [rows], found)
        results.append([added, scattered, taken, *found])

    expected = target.index_add(0, index, values)
    torch.testing.assert_close(results[0][:2], [expected, expected], rtol=0, atol=0)
    torch.testing.assert_close(results[0][3:], list(torch.sort(rows, stable=True)), rtol=0, atol=0)
    torch.testing.assert_close(results[0], results[1], rtol=0, atol=0)


def test_an_outer_axis_of_more_than_the_cache_holds_is_indexed_as_pytorch_does() -> None:
    torch.manual_seed(0)
    x, source = torch.randn(2, 1500, 300), torch.randn(2, 1500, 300)
    index = torch.randint(0, 1500, x.shape)

    taken = call("Gather", [x, index], torch.empty_like(x), "GATH", axis=1)
    added = call("Scatter", [x, index, source], torch.empty_like(x), "SCAT", axis=1, accumulate=1)

    assert torch.equal(taken, x.gather(1, index))
    assert torch.equal(added, x.scatter_add(1, index, source))


@pytest.mark.parametrize("width", [1, 2, 3, 4, 7, 8, 15, 16, 31, 32, 33, 63, 64, 65, 511, 512, 513])
def test_rows_of_any_number_of_bytes_are_selected_whole(width: int) -> None:
    x, index = torch.randint(0, 100, (9, width), dtype=torch.uint8), torch.tensor([8, 0, 3, 3])
    padded = torch.full((4 * width + 1,), 255, dtype=torch.uint8)

    call("IndexSelect", [x, index], padded[:-1].view(4, width))

    assert torch.equal(padded[:-1].view(4, width), x[index])
    assert padded[-1] == 255
