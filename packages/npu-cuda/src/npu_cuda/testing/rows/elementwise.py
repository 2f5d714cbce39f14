"""The rows of elementwise ops, and the cases and refusals that they share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from npu_cuda.testing.case import Array, Attrs, Case, OpRow, Refusal, TensorLayout
from npu_cuda.testing.misuse import misuses
from npu_cuda.testing.values import FLOATS, special_count

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


def _refusals_of_relu() -> Iterator[Refusal]:
    yield from elementwise_refusals(1)
    layout = TensorLayout((8,))
    yield from misuses("EltwiseRelu", Case("right", (layout,), (layout,)))


RELU = OpRow(
    "relu",
    "EltwiseRelu",
    None,
    lambda inputs, _: [np.where(inputs[0] < 0, 0.0, inputs[0])],
    lambda: elementwise_cases(1),
    _refusals_of_relu,
)


def _reference_of_add(inputs: Sequence[Array], attrs: Attrs) -> list[Array]:
    a, b = inputs
    with np.errstate(invalid="ignore"):
        return [a + float(np.float32(attrs["alpha"])) * b]


def _cases_of_add() -> Iterator[Case]:
    yield from elementwise_cases(2)
    for dtype in FLOATS:
        layout = TensorLayout((1029,), dtype)
        plain = Case("", (layout, layout), (layout,))
        for alpha in (1.0, 0.0, -1.0, 0.37, 1e-3):
            yield replace(plain, name=f"{dtype} alpha {alpha}", attrs={"alpha": alpha})
        shifted = replace(layout, shift=1)
        yield replace(
            plain, name=f"{dtype} alpha 0.37 misaligned", inputs=(shifted, layout), attrs={"alpha": 0.37}
        )
        yield replace(plain, name=f"{dtype} alpha 0.37 in place", aliases={0: 1}, attrs={"alpha": 0.37})


def _refusals_of_add() -> Iterator[Refusal]:
    yield from elementwise_refusals(2)
    matrix, row, scalar = TensorLayout((4, 6)), TensorLayout((6,)), TensorLayout(())
    for name, b in (("a row", row), ("a column", TensorLayout((4, 1))), ("a scalar", scalar)):
        yield Refusal(
            f"{name} to be broadcast", (matrix, b), (matrix,), "NotImplemented", "a is [4, 6], b is"
        )
    expanded = TensorLayout((4, 6), strides=(0, 1))
    yield Refusal("an expanded input", (matrix, expanded), (matrix,), "NotImplemented", "b is not contiguous")
    yield from misuses("EltwiseAdd", Case("right", (row, row), (row,)))


ADD = OpRow("add", "EltwiseAdd", "EADD", _reference_of_add, _cases_of_add, _refusals_of_add)
