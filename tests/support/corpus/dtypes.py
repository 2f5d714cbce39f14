"""Every dtype, promotion between them, low precision, another default dtype."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import arange, nn, rand, randn, tensor
from torch.nn import functional as fn

from tests.support.corpus.case import Call, Table, call, floats

CASES = Table(floats((3, 4)))
function, module = CASES.function, CASES.module


def of(dtype: torch.dtype) -> Callable[[], Call]:
    return lambda: call((randn(3, 4) * 4).to(dtype), (rand(3, 4) * 4 + 1).to(dtype))


# Dtypes

for dtype in (torch.float64, torch.float16, torch.bfloat16, torch.complex64, torch.complex128):
    function(
        f"arithmetic_{str(dtype)[6:]}",
        lambda x, y: (x * y + 2, x / y, x.mean(0), x @ y.mT, x.exp()),
        of(dtype),
    )
for dtype in (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8):
    function(
        f"arithmetic_{str(dtype)[6:]}",
        lambda x, y: (x * y + 2, x // y, x / y, x.sum(0), x @ y.mT, x.max()),
        of(dtype),
    )
for dtype in (torch.uint16, torch.uint32, torch.uint64):
    function(
        f"casts_{str(dtype)[6:]}", lambda x, y: (x.to(torch.float32), x == y, torch.stack([x, y])), of(dtype)
    )
for dtype in (torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz):
    function(
        f"casts_{str(dtype)[6:]}",
        lambda x, y, d=dtype: ((x.float() + y.float()).to(d), x.view(torch.uint8), x[1:]),
        of(dtype),
    )
function("arithmetic_bool", lambda x, y: (x & y, x + y, x.sum(), ~x, x.int() - 1, x.any()), of(torch.bool))
function("arithmetic_complex32", lambda x: x.to(torch.complex32).real + x.imag.half(),
    lambda: call(randn(3, dtype=torch.complex64)))  # fmt: skip
function("promotion_between_dtypes", lambda x, y: (x + y, x.half() * y, x.bool() + y, x * 1.5, y * 2),
    lambda: call(randn(3), arange(3)))  # fmt: skip
function("dtypes_that_layer_norm_takes_together", lambda x, w: fn.layer_norm(x, (3,), w) + w.double(),
    lambda: call(randn(2, 3).half(), randn(3)))  # fmt: skip
function("promotion_of_zero_dim_tensors", lambda x, s: (x * s, s * x, s + 1j, x.half() * s),
    lambda: call(randn(3), tensor(2.0, dtype=torch.float64)))  # fmt: skip
function(
    "bitcasts",
    lambda x: (x.view(torch.int16), x.view(torch.uint8).view(torch.float32), x.view(torch.complex64)),
)


@CASES.add(
    lambda: call(randn(2, 4, dtype=torch.bfloat16)),
    holding=lambda: {
        "weight": torch.randint(-128, 127, (5, 4), dtype=torch.int8),
        "scales": rand(5, dtype=torch.bfloat16),
    },
)
def int8_weights(self: Any, x: torch.Tensor) -> torch.Tensor:
    return fn.linear(x, self.weight.to(x.dtype)) * self.scales


module("double_model", lambda: nn.Sequential(nn.Linear(4, 3), nn.GELU()).double(),
    lambda: call(randn(2, 4, dtype=torch.float64)))  # fmt: skip
module("half_model", lambda: nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3)).half(),
    lambda: call(randn(2, 4).half()))  # fmt: skip
module(
    "bfloat16_convolution", lambda: nn.Conv2d(2, 3, 3).bfloat16(), lambda: call(randn(1, 2, 5, 5).bfloat16())
)
function("fake_quantization", lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -128, 127))
function("quantization_by_hand", lambda x: (x / 0.1).round().clamp(-128, 127).to(torch.int8).float() * 0.1)


@contextlib.contextmanager
def float64_default() -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


function(
    "captured_under_another_default_dtype",
    lambda x: (
        torch.ones(2),
        torch.rand(2),
        torch.tensor([1.0]),
        torch.full((2,), 1.5),
        arange(0, 1, 0.5),
        torch.eye(2),
        x,
        torch.linspace(0, 1, 3),
        torch.hann_window(4),
    ),
    lambda: call(arange(3)),
    under=float64_default,
)
function("integer_division_under_another_default_dtype", lambda x: (x / 2, x.sqrt(), x * 0.5),
    lambda: call(arange(3)), under=float64_default)  # fmt: skip
