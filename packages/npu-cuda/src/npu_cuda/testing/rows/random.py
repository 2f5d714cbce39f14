"""The rows of random ops, and Philox 4x32-10 in NumPy.

Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011, section 3.4.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from npu_cuda.testing.case import Array, Attrs, Case, OpRow, Refusal, TensorLayout
from npu_cuda.testing.misuse import misuses
from npu_cuda.testing.values import FLOATS

KEY = TensorLayout((), "int64")
_LOW = np.uint64(0xFFFFFFFF)
_SHIFT = np.uint64(32)


def philox(seed: int, counters: Array) -> Array:
    """Return the four words of each counter, [n, 4] of uint32.

    Args:
        seed: The key, 64 bits.
        counters: The low 64 bits of each counter, [n] of uint64; the high ones are 0.
    """
    keys = [np.uint64(seed & 0xFFFFFFFF), np.uint64(seed >> 32 & 0xFFFFFFFF)]
    words = [counters & _LOW, counters >> _SHIFT, np.zeros_like(counters), np.zeros_like(counters)]
    for _ in range(10):
        first, second = words[0] * np.uint64(0xD2511F53), words[2] * np.uint64(0xCD9E8D57)
        words = [
            (second >> _SHIFT) ^ words[1] ^ keys[0], second & _LOW,
            (first >> _SHIFT) ^ words[3] ^ keys[1], first & _LOW,
        ]  # fmt: skip
        keys = [(keys[0] + np.uint64(0x9E3779B9)) & _LOW, (keys[1] + np.uint64(0xBB67AE85)) & _LOW]
    return np.stack(words, axis=1).astype(np.uint32)


def uniform(seed: Array, offset: Array, shape: Sequence[int]) -> Array:
    """Return the random numbers in [0, 1) of a tensor of this shape."""
    count = prod(shape)
    blocks = np.arange((count + 3) // 4, dtype=np.uint64) + np.uint64(offset.item() & 0xFFFFFFFFFFFFFFFF)
    words: Array = philox(seed.item(), blocks).reshape(-1)[:count] >> np.uint32(8)
    return (words.astype(np.float64) * 2.0**-24).reshape(shape)


def _dropout(inputs: Sequence[Array], attrs: Attrs) -> list[Array]:
    x, seed, offset = inputs
    is_kept = uniform(seed, offset, x.shape) >= attrs["p"]
    return [x * np.where(is_kept, 1 / (1 - attrs["p"] * is_kept), 0), is_kept]


def _uniform(inputs: Sequence[Array], attrs: Attrs, shapes: Sequence[Any]) -> list[Array]:
    seed, offset = inputs
    return [attrs["low"] + uniform(seed, offset, shapes[0]) * (attrs["high"] - attrs["low"])]


def _dropout_case(name: str, x: TensorLayout, mask: TensorLayout | None = None, **attrs: float) -> Case:
    plain = TensorLayout(x.shape, "bool")
    return Case(name, (x, KEY, KEY), (x, mask or plain), attrs)


def _dropout_cases() -> Iterator[Case]:
    for dtype in (*FLOATS, "float64"):
        yield _dropout_case(dtype, TensorLayout((5, 7, 11), dtype))
    for p in (0.0, 0.25, 1.0):
        yield _dropout_case(f"p={p}", TensorLayout((2053,)), p=p)
    for shape in ((), (0,), (1,), (3,), (70_000,), (1, 2, 1, 3, 1, 2, 1, 5)):
        yield _dropout_case(f"{list(shape)}", TensorLayout(shape))
    yield _dropout_case("misaligned", TensorLayout((1029,), shift=1))
    yield _dropout_case("transposed", TensorLayout((33, 20), strides=(1, 33)))
    yield _dropout_case("a slice", TensorLayout((33, 20), strides=(24, 1)))
    turned = TensorLayout((33, 20), "bool", strides=(1, 33))
    yield _dropout_case("a transposed mask", TensorLayout((33, 20)), turned)
    yield replace(_dropout_case("in place", TensorLayout((2050,))), aliases={0: 0})
    keys = TensorLayout((1,), "int64")
    yield replace(
        _dropout_case("keys of one axis", TensorLayout((9,))), inputs=(TensorLayout((9,)), keys, keys)
    )


def _dropout_refusals() -> Iterator[Refusal]:
    right = _dropout_case("right", TensorLayout((4, 5)))
    yield from misuses("Dropout", right)
    x, *_ = right.inputs
    two, real = TensorLayout((2,), "int64"), TensorLayout(())
    for name, keys in (("two seeds", (two, KEY)), ("a real offset", (KEY, real))):
        yield Refusal(name, (x, *keys), right.outputs, "seed and offset are int64 numbers")
    whole = TensorLayout((4, 5), "int64")
    yield Refusal("integers", (whole, KEY, KEY), (whole, right.outputs[1]), "Dropout has no result of int64")
    other = TensorLayout((5, 4))
    yield Refusal("another shape", (other, KEY, KEY), right.outputs, "an input is [5, 4]")


def _uniform_cases() -> Iterator[Case]:
    for dtype in (*FLOATS, "float64"):
        yield Case(dtype, (KEY, KEY), (TensorLayout((5, 7, 11), dtype),), {"low": -2.0, "high": 3.0})
    for shape in ((), (0,), (3,), (70_000,)):
        yield Case(f"{list(shape)}", (KEY, KEY), (TensorLayout(shape),))
    yield Case("transposed", (KEY, KEY), (TensorLayout((33, 20), strides=(1, 33)),))


def _uniform_refusals() -> Iterator[Refusal]:
    yield from misuses("Uniform", Case("right", (KEY, KEY), (TensorLayout((4,)),)))
    whole = TensorLayout((4,), "int64")
    yield Refusal("integers", (KEY, KEY), (whole,), "Uniform has no result of int64")
    yield Refusal("real keys", (TensorLayout(()), KEY), (TensorLayout((4,)),), "int64 numbers")


RANDOM_ROWS = (
    OpRow("dropout", "Dropout", "DROP", _dropout, _dropout_cases, _dropout_refusals),
    OpRow("uniform", "Uniform", "UNIF", _uniform, _uniform_cases, _uniform_refusals, sized=True),
)
