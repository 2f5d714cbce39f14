"""Cases and refusals common to all elementwise ops."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from npu_cuda.testing.case import Attrs, Case, Refusal, TensorLayout
from npu_cuda.testing.dtypes import FLOATS
from npu_cuda.testing.inputs import special_count

SHAPES = (
    (), (0,), (1,), (2,), (31,), (32,), (33,), (255,), (257,), (1023,), (20011,), (3, 0, 5), (5, 7, 11),
    (1, 2, 1, 3, 1, 2, 1, 5),
)  # fmt: skip


def elementwise_cases(arity: int, *, attrs: Attrs | None = None) -> Iterator[Case]:
    """Yield cases of ops on tensors of one shape and dtype; the output may alias any input."""
    for dtype in FLOATS:
        for shape in SHAPES:
            yield _case(f"{dtype} {list(shape)}", TensorLayout(shape, dtype), arity, attrs)
        for which in (*range(arity + 1), None):
            yield _misaligned_case(dtype, arity, which, attrs)
        for shape in ((0,), (33,), (20011,)):
            for place in range(arity):
                case = _case(
                    f"{dtype} {list(shape)} in place of input {place}",
                    TensorLayout(shape, dtype),
                    arity,
                    attrs,
                )
                yield replace(case, aliases={0: place})
        special = TensorLayout((special_count(arity),), dtype)
        yield replace(_case(f"{dtype} special values", special, arity, attrs), special=True)


def _case(name: str, layout: TensorLayout, arity: int, attrs: Attrs | None) -> Case:
    return Case(name, (layout,) * arity, (layout,), attrs or {}, exact=True)


def _misaligned_case(dtype: str, arity: int, which: int | None, attrs: Attrs | None) -> Case:
    layout = TensorLayout((1029,), dtype)
    layouts = [replace(layout, shift=1) if which in {i, None} else layout for i in range(arity + 1)]
    name = "everything" if which is None else "the output" if which == arity else f"input {which}"
    return Case(
        f"{dtype}, {name} misaligned by one item",
        tuple(layouts[:-1]),
        (layouts[-1],),
        attrs or {},
        exact=True,
    )


def elementwise_refusals(arity: int) -> Iterator[Refusal]:
    """Yield the refusals of such an op."""
    matrix = TensorLayout((4, 6))
    inputs = (matrix,) * arity
    strided = replace(matrix, strides=(1, 4))
    gaps = replace(matrix, strides=(8, 1))
    yield _refusal("an output of another shape", inputs, TensorLayout((6, 4)), "[6, 4]")
    yield _refusal("an output of another rank", inputs, TensorLayout((24,)), "[24]")
    yield _refusal("an output of another dtype", inputs, replace(matrix, dtype="float16"), "y is float16")
    yield _refusal("an output that is transposed", inputs, strided, "y is not contiguous")
    for i in range(arity):
        for name, layout in (("transposed", strided), ("with gaps", gaps)):
            wrong = (*inputs[:i], layout, *inputs[i + 1 :])
            yield _refusal(f"input {i} {name}", wrong, matrix, "is not contiguous")
        yield _refusal(
            f"input {i} of another dtype",
            (*inputs[:i], replace(matrix, dtype="int32"), *inputs[i + 1 :]),
            matrix,
            "int32",
        )
        shifted = Refusal(
            f"an output that overlaps input {i}", (TensorLayout((32,)),) * arity, (TensorLayout((32,)),),
            "InvalidArgument", f"output 0 overlaps input {i}", overlaps={0: (i, 4)},
        )  # fmt: skip
        yield shifted
    for dtype in ("float64", "int64", "bool", "complex64"):
        layout = replace(matrix, dtype=dtype)
        yield _refusal(dtype, (layout,) * arity, layout, f"is {dtype}, not")


def _refusal(name: str, inputs: tuple[TensorLayout, ...], output: TensorLayout, match: str) -> Refusal:
    return Refusal(name, inputs, (output,), "NotImplemented", match)
