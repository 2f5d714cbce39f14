"""NaN, infinities, -0.0, subnormal and huge numbers come out as in PyTorch, element by element."""

from collections.abc import Callable
from itertools import permutations

import numpy as np
import pytest
import torch

from npu_cuda import _C
from npu_cuda.testing import Case, TensorLayout, encode
from npu_cuda.testing.memory import CallMemory
from npu_cuda.testing.values import inputs_of, special_count

DEVICES = [device["name"] for device in _C.devices()]
FLOATS = ("float32", "float16", "bfloat16")

Op = Callable[..., torch.Tensor]


def as_torch(values: np.ndarray, dtype: str) -> torch.Tensor:
    stored = encode(values, dtype)
    tensor = torch.from_numpy(stored.view(np.int16) if dtype == "bfloat16" else stored)
    return tensor.view(torch.bfloat16) if dtype == "bfloat16" else tensor


def assert_same(memory: CallMemory, dtype: str, expected: torch.Tensor) -> None:
    stored = memory.outputs[0].stored_elements()
    actual = torch.from_numpy(stored.view(np.int16) if dtype == "bfloat16" else stored).view(
        getattr(torch, dtype)
    )
    assert actual.dtype == expected.dtype
    assert actual.shape == expected.shape
    assert torch.equal(actual.isnan(), expected.isnan())
    kept = ~expected.isnan()
    assert torch.equal(actual[kept], expected[kept])
    assert torch.equal(actual[kept].signbit(), expected[kept].signbit())


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    ("op", "arity", "eager"), [("EltwiseRelu", 1, torch.relu), ("EltwiseAdd", 2, torch.add)]
)
def test_elementwise_op_gives_what_torch_gives(
    op: str, arity: int, eager: Op, dtype: str, device: str
) -> None:
    layout = TensorLayout((special_count(arity),), dtype)
    case = Case("special", (layout,) * arity, (layout,), special=True)
    memory = CallMemory.of(case, device)

    _C.op_call(_C.kinds()[op], *memory.tensors())

    assert_same(memory, dtype, eager(*(as_torch(values, dtype) for values in inputs_of(case))))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("source", "target"), list(permutations(FLOATS, 2)))
def test_cast_gives_what_torch_gives(source: str, target: str, device: str) -> None:
    every_half = np.arange(65536, dtype=np.uint16).view(np.float16).astype(np.float64)
    case = Case("all", (TensorLayout((65536,), source),), (TensorLayout((65536,), target),))
    memory = CallMemory.of(case, device)
    memory.inputs[0].write(every_half)

    _C.op_call(_C.OpKind.Copy, *memory.tensors())

    assert_same(memory, target, as_torch(every_half, source).to(getattr(torch, target)))
