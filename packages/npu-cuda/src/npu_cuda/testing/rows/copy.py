"""The row of the op Copy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import permutations

from npu_cuda.testing.case import Array, Attrs, Case, OpRow, Refusal, TensorLayout
from npu_cuda.testing.misuse import misuses
from npu_cuda.testing.values import FLOATS, special_count

OP = "Copy"

DTYPES = (
    "bool", "uint8", "int8", "int16", "float16", "bfloat16", "int32", "float32", "int64", "float64",
    "complex64",
    "complex128",
)  # fmt: skip

CONVERSIONS = (
    *((dtype, "bool") for dtype in FLOATS),
    ("int32", "int64"), ("int64", "float32"), ("float64", "float32"), ("float32", "int16"),
    ("bool", "bfloat16"),
)  # fmt: skip

# Shape, strides of x, strides of y; None stands for contiguous.
LAYOUTS = {
    "a scalar": ((), None, None),
    "nothing": ((3, 0, 2), (2, 0, 9), None),
    "one item": ((1, 1), (7, 3), None),
    "a vector": ((33,), None, None),
    "every third item": ((31,), (3,), None),
    "to every second item": ((31,), None, (2,)),
    "rows with gaps": ((7, 33), (40, 1), (35, 1)),
    "wide rows with gaps": ((7, 24), (40, 1), (48, 1)),
    "rows of 8 bytes with gaps": ((7, 6), (40, 1), (18, 1)),
    "rows with gaps of x alone": ((7, 33), (40, 1), None),
    "rows with gaps of y alone": ((7, 33), None, (35, 1)),
    "a transposed matrix": ((33, 65), (1, 33), None),
    "to a transposed matrix": ((33, 65), None, (1, 33)),
    "both transposed": ((5, 7), (1, 5), (1, 5)),
    "a square of 32": ((32, 32), (1, 32), None),
    "transposed with gaps": ((40, 33), (1, 50), (34, 1)),
    "a transposed batch": ((3, 35, 4, 34), (1200 * 4, 1, 1200, 35), None),
    "transposed, every second item": ((9, 10), (2, 18), None),
    "an expanded row": ((5, 33), (0, 1), None),
    "an expanded column": ((33, 5), (1, 0), None),
    "an expanded item": ((4, 9), (0, 0), None),
    "rank 8": ((2, 1, 3, 2, 1, 2, 3, 2), None, (1, 1, 2, 6, 1, 12, 24, 72)),
    "rank 8, no two axes are one": ((2, 2, 2, 2, 2, 2, 2, 3), (640, 320, 160, 80, 40, 20, 9, 2), None),
}


def reference(inputs: Sequence[Array], _: Attrs) -> list[Array]:
    return [inputs[0]]


def _case(name: str, dtypes: tuple[str, str]) -> Case:
    shape, x_strides, y_strides = LAYOUTS[name]
    x, y = TensorLayout(shape, dtypes[0], x_strides), TensorLayout(shape, dtypes[1], y_strides)
    text = dtypes[0] if dtypes[0] == dtypes[1] else f"{dtypes[0]} to {dtypes[1]}"
    return Case(f"{text}, {name}", (x,), (y,), exact=True)


def cases() -> Iterator[Case]:
    for dtype in DTYPES:
        for name in ("a vector", "a transposed matrix", "rows with gaps", "wide rows with gaps"):
            yield _case(name, (dtype, dtype))
    for name in LAYOUTS:
        if name not in {"a vector", "a transposed matrix", "rows with gaps", "wide rows with gaps"}:
            yield _case(name, ("float32", "float32"))
    for pair in permutations(FLOATS, 2):
        for name in ("a scalar", "nothing", "a vector", "every third item", "a transposed matrix", "rank 8"):
            yield _case(name, pair)
        special = tuple(TensorLayout((special_count(1),), dtype) for dtype in pair)
        yield Case(
            f"{pair[0]} to {pair[1]}, special values", special[:1], special[1:], special=True, exact=True
        )
    for pair in CONVERSIONS:
        yield _case("a vector", pair)
    large = TensorLayout((20011,))
    yield Case("float32, large", (large,), (large,), exact=True)
    yield Case("float32, misaligned", (replace(large, shift=1),), (replace(large, shift=3),), exact=True)
    for dtype in FLOATS:
        layout = TensorLayout((special_count(1),), dtype)
        yield Case(f"{dtype}, special values", (layout,), (layout,), special=True, exact=True)


def refusals() -> Iterator[Refusal]:
    matrix = TensorLayout((4, 6))
    for name, x, y, match in (
        ("another shape", matrix, TensorLayout((6, 4)), "x is [4, 6], y is [6, 4]"),
        ("complex64 to float32", replace(matrix, dtype="complex64"), matrix, "complex64, not a real number"),
    ):
        yield Refusal(name, (x,), (y,), match)
    for offset in (0, 5):
        yield Refusal(
            f"onto itself, {offset} items on", (matrix,), (matrix,), "overlaps input 0",
            overlaps={0: (0, offset)}, status="InvalidArgument"
        )  # fmt: skip
    expanded = replace(matrix, strides=(0, 1))
    yield Refusal(
        "to an expanded row",
        (matrix,),
        (expanded,),
        "may have elements that share memory",
        status="InvalidArgument",
    )
    yield from misuses(OP, Case("right", (matrix,), (matrix,)))


COPY = OpRow("copy", OP, None, reference, cases, refusals)
