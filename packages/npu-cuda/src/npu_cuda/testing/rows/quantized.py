"""The rows of products by quantized weights, of floats and of rounded floats."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from npu_cuda.testing.case import Array, Attrs, Case, OpRow, Refusal, TensorLayout
from npu_cuda.testing.misuse import misuses
from npu_cuda.testing.values import FLOATS

Shape = tuple[int, ...]
_BITS = {"int8": 8, "uint8": 4}


def reference(inputs: Sequence[Array], attrs: Attrs, shapes: Sequence[Shape]) -> list[Array]:  # noqa: ARG001
    a, q, s, *bias = inputs
    integers = unpack(q) if q.dtype == np.uint8 else q
    n, k = integers.shape
    groups = s.shape[1]
    weight = integers.astype(np.float64).reshape(n, groups, k // max(1, groups)) * s[..., None]
    product = a @ weight.reshape(n, k).T
    return [product + bias[0] if bias else product]


def dynamic_reference(inputs: Sequence[Array], attrs: Attrs, shapes: Sequence[Shape]) -> list[Array]:
    a, q, s, *bias = inputs
    k = a.shape[-1]
    group = k // max(1, s.shape[1])
    rounded = np.zeros(a.shape)
    block = attrs.get("block", 32)
    for start in range(0, k, max(1, group)):
        for at in range(start, start + group, block):
            part = slice(at, min(at + block, start + group))
            rounded[..., part] = round_block(a[..., part])
    if q.dtype == np.uint8:
        q = (unpack(q) + 8) % 16 - 8  # bytes of any weight have no 8: here they are modulo 16
    return reference([rounded, q, s, *bias], {}, shapes)


def round_block(values: Array) -> Array:
    """Return numbers of float32 as integers times a scale for each row, as they are defined."""
    with np.errstate(invalid="ignore", divide="ignore"):
        numbers = values.astype(np.float32)
        scales = np.abs(numbers).max(-1, keepdims=True, initial=0) / np.float32(127)
        integers = np.clip(np.rint(np.where(scales == 0, 0, numbers / scales)), -127, 127)
    return np.asarray(integers.astype(np.float64) * scales)


def unpack(bytes: Array) -> Array:
    """Return two integers of each byte, which is 16 times the second one and the first one."""
    both = bytes.view(np.int8).astype(np.int64)
    first = (both + 8) % 16 - 8
    return np.stack([first, (both - first) // 16], -1).reshape(len(bytes), 2 * bytes.shape[1])


def quantized_case(
    name: str,
    a: Shape,
    n: int,
    group: int,
    *,
    integers: str = "int8",
    dtype: str = "float32",
    bias: bool = False,
) -> Case:
    *rows, k = a
    q = TensorLayout((n, k * _BITS[integers] // 8), integers)
    inputs = [TensorLayout(a, dtype), q, TensorLayout((n, k // group))]
    if bias:
        inputs.append(TensorLayout((n,), dtype))
    # The integers are up to 128: errors are as those of sums of so many more products.
    return Case(name, tuple(inputs), (TensorLayout((*rows, n), dtype),), terms=k * 2**12)


def cases() -> Iterator[Case]:
    for integers, bits in _BITS.items():
        for m, n, k, group in (
            (1, 1, 2, 2), (1, 5, 32, 32), (1, 9, 96, 32), (1, 33, 256, 64), (1, 200, 1024, 1024),
            (1, 17, 66, 22),
            (2, 33, 130, 130), (3, 7, 64, 32), (4, 70, 288, 32), (4, 13, 48, 2),
            (5, 70, 66, 22), (9, 130, 600, 600), (12, 33, 64, 32), (13, 130, 600, 600), (33, 65, 520, 8),
            (150, 18, 320, 64), (150, 65, 64, 32), (300, 3, 64, 64),
            (0, 5, 4, 4), (2, 0, 4, 4),
        ):  # fmt: skip
            # The emulator takes seconds for a large product.
            for bias in (False, True) if m * n * k < 500_000 else (True,):
                name = f"{bits} bits, {m} x {k} x {n}, groups of {group}, bias={bias}"
                yield quantized_case(name, (m, k), n, group, integers=integers, bias=bias)
        for m in (1, 3, 20):
            for dtype in FLOATS[1:]:
                name = f"{bits} bits, {m} rows of {dtype}"
                yield quantized_case(name, (m, 96), 70, 32, integers=integers, dtype=dtype, bias=True)
            yield from _strided_cases(integers, m)
        for a in ((2, 1, 64), (3, 5, 64), (2, 3, 1, 64)):
            yield quantized_case(f"{bits} bits, rows of {list(a)}", a, 20, 32, integers=integers, bias=True)
    yield quantized_case("groups of odd numbers", (2, 45), 9, 9)
    yield quantized_case("one integer in a group", (1, 7), 9, 1)
    none = quantized_case("", (3, 4), 5, 4, bias=True)
    empty = TensorLayout((3, 0)), TensorLayout((5, 0), "int8"), TensorLayout((5, 0)), none.inputs[3]
    yield Case("no columns", empty, none.outputs)


def _strided_cases(integers: str, m: int) -> Iterator[Case]:
    plain = quantized_case("", (m, 96), 70, 32, integers=integers, bias=True)
    _, *rest = plain.inputs
    half = TensorLayout((m, 96), "bfloat16")
    for name, given, made in (
        ("A transposed in memory", TensorLayout((m, 96), strides=(1, m)), plain.outputs[0]),
        ("rows with gaps", TensorLayout((m, 96), strides=(100, 1)), plain.outputs[0]),
        ("gaps everywhere", TensorLayout((m, 96), strides=(200, 2)), TensorLayout((m, 70), strides=(150, 2))),
    ):
        yield Case(f"{integers}, {m}, {name}", (given, *rest), (made,), terms=plain.terms)
    bias = TensorLayout((70,), "bfloat16")
    inputs = half, rest[0], rest[1], bias
    yield Case(f"{integers}, {m}, bfloat16 to float32", inputs, plain.outputs, terms=plain.terms)
    wide = TensorLayout((1, m, 96))
    yield Case(
        f"{integers}, {m}, broadcast axes", (wide, *rest), (TensorLayout((3, m, 70)),), terms=plain.terms
    )


def refusals() -> Iterator[Refusal]:
    return _refusals("QuantizedGemm")


def _refusals(op: str) -> Iterator[Refusal]:
    right = quantized_case("right", (4, 64), 20, 32, bias=True)
    a, q, s, _ = right.inputs
    (d,) = right.outputs
    packed = TensorLayout((20, 32), "uint8")
    for name, inputs, output, match in (
        ("A of float64", (TensorLayout((4, 64), "float64"), q, s), d, "is float64, not "),
        ("A of int32", (TensorLayout((4, 64), "int32"), q, s), d, "is int32, not "),
        ("A of rank 1", (TensorLayout((64,)), q, s), d, "A has rank 1, less than 2"),
        ("D of rank 1", (a, q, s), TensorLayout((20,)), "D has rank 1, less than 2"),
        ("D of another dtype", (a, q, s), TensorLayout((4, 20), "float16"), "D is float16, not float32"),
        ("another m", (a, q, s), TensorLayout((3, 20)), "D is float32[3, 20], not [4, 20]"),
        ("A of a larger rank", (TensorLayout((1, 4, 64)), q, s), d, "A is [1, 4, 64], D, to which it broa"),
        ("Q of floats", (a, TensorLayout((20, 64)), s), d, "Q is float32, neither int8 nor uint8"),
        ("another k", (a, TensorLayout((20, 60), "int8"), s), d, "not the integers of [20, 64]"),
        ("another n", (a, TensorLayout((19, 64), "int8"), s), d, "not the integers of [20, 64]"),
        ("half of Q", (a, TensorLayout((20, 64), "uint8"), s), d, "Q is uint8[20, 64], not the integers"),
        ("Q with gaps", (a, TensorLayout((20, 64), "int8", (80, 1)), s), d, "Q is not contiguous"),
        ("S of another dtype", (a, q, TensorLayout((20, 2), "float16")), d, "S is float16, not float32"),
        ("S with gaps", (a, q, TensorLayout((20, 2), strides=(4, 2))), d, "S is not contiguous"),
        ("groups that do not fit", (a, q, TensorLayout((20, 3))), d, "not the scales of [20, 64]"),
        ("no groups", (a, q, TensorLayout((20, 0))), d, "not the scales of [20, 64]"),
        ("odd groups", (a, packed, TensorLayout((20, 64))), d, "groups of 4 bits have 1 int"),
        ("bias of another dtype", (a, q, s, TensorLayout((20,), "float16")), d, "bias is float16, not"),
        ("bias of another size", (a, q, s, TensorLayout((4,))), d, "bias is [4], a row of D is [4, 20]"),
    ):  # fmt: skip
        yield Refusal(name, inputs, (output,), match)
    yield from misuses(op, right)


def dynamic_cases() -> Iterator[Case]:
    yield from cases()
    for integers, bits in _BITS.items():
        for m, k, group, block in (
            # Blocks that fit into vectors, that are longer than groups, and whose last one is shorter.
            (1, 256, 256, 64), (3, 256, 64, 16), (2, 192, 64, 128), (2, 96, 48, 32), (5, 130, 130, 32),
            (1, 288, 288, 32), (4, 288, 96, 32), (17, 320, 80, 48), (3, 72, 24, 8), (2, 60, 20, 6),
            (1, 2048, 1024, 1024), (2, 2200, 2200, 1000), (1, 144, 16, 16), (3, 176, 8, 32),
            # Many rows, in panels of parts of groups, or of several.
            (10, 1200, 1200, 32), (65, 1104, 1104, 32), (66, 2048, 1024, 1024), (67, 1160, 1160, 480),
            (68, 96, 8, 8), (69, 1040, 520, 48), (145, 136, 136, 32), (70, 60, 20, 6),
        ):  # fmt: skip
            case = quantized_case(
                f"{bits} bits, {m} x {k}, groups of {group}, blocks of {block}", (m, k), 21, group,
                integers=integers,
            )  # fmt: skip
            yield replace(case, attrs={"block": block})
    yield replace(quantized_case("blocks of odd numbers", (3, 90), 9, 45), attrs={"block": 7})
    yield replace(quantized_case("blocks of one", (3, 64), 9, 64), attrs={"block": 1})
    odd = quantized_case("4 bits, odd blocks that are longer than groups", (3, 48), 9, 16, integers="uint8")
    yield replace(odd, attrs={"block": 17})


def dynamic_refusals() -> Iterator[Refusal]:
    yield from _refusals("DynamicQuantizedGemm")
    right = quantized_case("right", (4, 64), 20, 32)
    packed = quantized_case("right", (4, 64), 20, 32, integers="uint8")
    for block, case, match in (
        (0, right, "blocks have 0 elements, not 1 to 1024"),
        (1025, right, "blocks have 1025 elements, not 1 to 1024"),
        (5, packed, "blocks have 5 elements, and a byte has two of 4 bits"),
    ):
        name = f"blocks of {block}"
        yield Refusal(name, case.inputs, case.outputs, match, attrs={"block": block})


QUANTIZED = OpRow("quantized_gemm", "QuantizedGemm", None, reference, cases, refusals, sized=True)
DYNAMIC = OpRow(
    "dynamic_quantized_gemm", "DynamicQuantizedGemm", "DQGM", dynamic_reference, dynamic_cases,
    dynamic_refusals, sized=True,
)  # fmt: skip
