"""The row of the op Gemm."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np

from npu_cuda.testing.case import Array, Attrs, Case, OpRow, Refusal, TensorLayout
from npu_cuda.testing.misuse import misuses

OP = "Gemm"

# m, n, k
SIZES = (
    (1, 1, 1), (2, 3, 4), (6, 16, 8), (7, 17, 9), (31, 32, 33), (32, 31, 1), (1, 33, 65), (65, 1, 16),
    (64, 64, 64),
    (63, 65, 31), (100, 97, 300),
)  # fmt: skip
EMPTY = ((0, 3, 4), (3, 0, 4), (0, 0, 0))


def reference(inputs: Sequence[Array], attrs: Attrs) -> list[Array]:
    a = inputs[0].T if attrs["ta"] else inputs[0]
    b = inputs[1].T if attrs["tb"] else inputs[1]
    result = float(np.float32(attrs["alpha"])) * (a @ b)
    if attrs["beta"] != 0:
        result = result + float(np.float32(attrs["beta"])) * inputs[2]
    return [result]


def gemm_case(
    name: str, sizes: tuple[int, int, int], *, with_c: bool = False, in_place: bool = False, **attrs: float
) -> Case:
    """Return a case; it reads C if there is one and beta is not 0."""
    m, n, k = sizes
    a = TensorLayout((k, m) if attrs.get("ta") else (m, k))
    b = TensorLayout((n, k) if attrs.get("tb") else (k, n))
    c = (TensorLayout((m, n)),) if with_c else ()
    unread = (2,) if with_c and not in_place and attrs.get("beta", 0) == 0 else ()
    aliases = {0: 2} if in_place else {}
    return Case(name, (a, b, *c), (TensorLayout((m, n)),), attrs, aliases, unread=unread, terms=k)


def cases() -> Iterator[Case]:
    for sizes in SIZES + EMPTY:
        yield gemm_case(f"{sizes}", sizes)
    for ta, tb, sizes in product((0, 1), (0, 1), ((7, 17, 9), (65, 33, 40), (64, 64, 64))):
        yield gemm_case(f"{sizes} ta={ta} tb={tb}", sizes, ta=ta, tb=tb)
        yield gemm_case(
            f"{sizes} ta={ta} tb={tb} beta=0.5", sizes, with_c=True, ta=ta, tb=tb, alpha=-1.5, beta=0.5
        )
    odd = (33, 35, 37)
    yield gemm_case("alpha=2.5", odd, alpha=2.5)
    yield gemm_case("alpha=0", odd, alpha=0.0)
    yield gemm_case("tf32 allowed", odd, precision=1)
    yield gemm_case("beta=0 does not read C", odd, with_c=True)
    yield gemm_case("beta=1", odd, with_c=True, beta=1.0)
    yield gemm_case("C is D", odd, with_c=True, in_place=True, beta=0.25)
    yield gemm_case("C is D, k large", (9, 17, 700), with_c=True, in_place=True, beta=0.25, tb=1)
    yield gemm_case("C is D, beta=0", odd, with_c=True, in_place=True)
    yield gemm_case("k=0 without C", (33, 17, 0))
    yield gemm_case("k=0 with C", (33, 17, 0), with_c=True, beta=2.0)
    yield gemm_case("k=0, C is D", (33, 17, 0), with_c=True, in_place=True, beta=2.0)
    yield gemm_case("nothing with C", (0, 17, 5), with_c=True, beta=2.0, ta=1, tb=1)
    misaligned = TensorLayout((33, 33), shift=1)
    yield Case("misaligned", (misaligned, misaligned), (misaligned,), terms=33)


def refusals() -> Iterator[Refusal]:
    a, b, d = TensorLayout((4, 5)), TensorLayout((5, 6)), TensorLayout((4, 6))
    square = TensorLayout((5, 5))
    half = TensorLayout((5, 5), "float16")
    shapes = (
        ("k differs", (a, TensorLayout((4, 6))), d, "B is float32[4, 6], not [5, 6]"),
        ("D of another shape", (a, b), TensorLayout((6, 4)), "D is float32[6, 4], not [4, 6]"),
        ("C of another shape", (a, b, TensorLayout((6,))), d, "C has rank 1, not 2"),
        ("C to be broadcast", (a, b, TensorLayout((1, 6))), d, "C is float32[1, 6], not [4, 6]"),
        ("A of rank 3", (TensorLayout((1, 4, 5)), b), d, "A has rank 3, not 2"),
        ("B of rank 1", (a, TensorLayout((5,))), TensorLayout((4,)), "B has rank 1, not 2"),
        ("A transposed in memory", (TensorLayout((4, 5), strides=(1, 4)), b), d, "A is not contiguous"),
        ("D with gaps", (a, b), TensorLayout((4, 6), strides=(8, 1)), "D is not contiguous"),
        ("float16", (half, half), half, "A is float16, not float32"),
        ("B of another dtype", (square, half), square, "B is float16, not float32"),
    )  # fmt: skip
    for name, inputs, output, match in shapes:
        yield Refusal(name, inputs, (output,), "NotImplemented", match)
    attrs = (
        ("ta makes k differ", {"ta": 1}, "B is float32[5, 6], not [4, 6]"),
        ("tb makes k differ", {"tb": 1}, "B is float32[5, 6], not [5, 5]"),
        ("ta is 2", {"ta": 2}, "ta is 2, not 0 or 1"),
        ("tb is -1", {"tb": -1}, "tb is -1, not 0 or 1"),
        ("precision is 2", {"precision": 2}, "precision is 2, not 0 or 1"),
        ("beta without C", {"beta": 1.0}, "there is no C"),
    )
    for name, values, match in attrs:
        yield Refusal(name, (a, b), (d,), "NotImplemented", match, attrs=values)
    for i in range(2):
        yield Refusal(
            f"D in place of {'AB'[i]}", (square, square), (square,), "InvalidArgument",
            f"output 0 overlaps input {i}",
            overlaps={0: (i, 0)},
        )  # fmt: skip
    yield Refusal(
        "D a part of C", (TensorLayout((4, 5)), TensorLayout((5, 6)), d), (d,), "InvalidArgument",
        "may be the same tensor, but not a part of it", attrs={"beta": 1.0}, overlaps={0: (2, 6)},
    )  # fmt: skip
    yield from misuses(OP, Case("right", (square, square), (square,)))


GEMM = OpRow("gemm", OP, "GEMM", reference, cases, refusals)
