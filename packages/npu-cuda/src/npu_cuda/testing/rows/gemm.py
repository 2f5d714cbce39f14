"""The row of the op Gemm."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from npu_cuda.testing.case import Array, Attrs, Case, OpRow, Refusal, TensorLayout
from npu_cuda.testing.memory import contiguous_strides
from npu_cuda.testing.misuse import misuses

OP = "Gemm"

Shape = tuple[int, ...]

# m, n, k
SIZES = (
    (1, 1, 1), (2, 3, 4), (6, 16, 8), (7, 17, 9), (31, 32, 33), (32, 31, 1), (1, 33, 65), (65, 1, 16),
    (64, 64, 64),
    (63, 65, 31), (100, 67, 300), (16, 33, 260),
)  # fmt: skip
EMPTY = ((0, 3, 4), (3, 0, 4), (0, 0, 0))


def product(inputs: Sequence[Array], attrs: Attrs) -> Array:
    """Return op(A) op(B), of the first two inputs."""
    a = inputs[0].swapaxes(-1, -2) if attrs["ta"] else inputs[0]
    b = inputs[1].swapaxes(-1, -2) if attrs["tb"] else inputs[1]
    return np.asarray(a @ b)


def reference(inputs: Sequence[Array], attrs: Attrs) -> list[Array]:
    result = float(np.float32(attrs["alpha"])) * product(inputs, attrs)
    if attrs["beta"] != 0:
        result = result + float(np.float32(attrs["beta"])) * inputs[2]
    return [result]


def transposed_in_memory(*shape: int) -> TensorLayout:
    """Return a float32 layout whose last two axes are exchanged in memory."""
    strides = contiguous_strides((*shape[:-2], shape[-1], shape[-2]))
    return TensorLayout(shape, strides=(*strides[:-2], strides[-1], strides[-2]))


def gemm_case(
    name: str,
    sizes: tuple[int, int, int],
    *,
    with_c: bool = False,
    in_place: bool = False,
    dtype: str = "float32",
    **attrs: float,
) -> Case:
    """Return a case; it reads C if there is one and beta is not 0."""
    m, n, k = sizes
    a = TensorLayout((k, m) if attrs.get("ta") else (m, k), dtype)
    b = TensorLayout((n, k) if attrs.get("tb") else (k, n), dtype)
    c = (TensorLayout((m, n), dtype),) if with_c else ()
    unread = (2,) if with_c and not in_place and attrs.get("beta", 0) == 0 else ()
    aliases = {0: 2} if in_place else {}
    return Case(name, (a, b, *c), (TensorLayout((m, n), dtype),), attrs, aliases, unread=unread, terms=k)


def cases() -> Iterator[Case]:
    for sizes in SIZES + EMPTY:
        yield gemm_case(f"{sizes}", sizes)
    for ta, tb, sizes in itertools.product(
        (0, 1), (0, 1), ((7, 17, 9), (5, 35, 133), (65, 33, 40), (64, 64, 64))
    ):
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
    yield gemm_case("C is D, one row", (1, 17, 70), with_c=True, in_place=True, beta=1.0)
    yield gemm_case("C is D, beta=0", odd, with_c=True, in_place=True)
    yield gemm_case("k=0 without C", (33, 17, 0))
    yield gemm_case("k=0 with C", (33, 17, 0), with_c=True, beta=2.0)
    yield gemm_case("k=0, C is D", (33, 17, 0), with_c=True, in_place=True, beta=2.0)
    yield gemm_case("nothing with C", (0, 17, 5), with_c=True, beta=2.0, ta=1, tb=1)
    misaligned = TensorLayout((33, 33), shift=1)
    yield Case("misaligned", (misaligned, misaligned), (misaligned,), terms=33)
    yield from _rows_and_columns()
    yield from _dtypes()
    yield from _layouts()
    yield from _batches()


def _rows_and_columns() -> Iterator[Case]:
    """Yield products of vectors, which have loops of their own, and all remainders of tiles."""
    for tb, n, k in itertools.product((0, 1), (1, 4, 70, 1030), (1, 5, 33, 100)):
        yield gemm_case(f"a row of {k} by {n}, tb={tb}", (1, n, k), tb=tb)
        yield gemm_case(f"a row of {k} by {n}, tb={tb}, with C", (1, n, k), tb=tb, with_c=True, beta=1.0)
    for ta, m in itertools.product((0, 1), (2, 70)):
        yield gemm_case(f"{m} rows by a column, ta={ta}", (m, 1, 35), ta=ta, with_c=True, beta=2.0)
    for m in range(1, 14):
        yield gemm_case(f"{m} rows", (m, 65, 19))
    for n in (2, 3, 8, 15, 16, 17, 24, 31, 40, 47, 49, 63, 80, 129):
        yield gemm_case(f"{n} columns", (7, n, 5))
    yield gemm_case("many rows, k large", (150, 66, 270))
    # B is read where it is up to 96 rows, and so is the transposed A.
    for ta, sizes in itertools.product((0, 1), ((70, 96, 300), (96, 48, 40), (97, 80, 70), (90, 1040, 20))):
        yield gemm_case(f"whole panels {sizes} ta={ta}", sizes, ta=ta)


def _dtypes() -> Iterator[Case]:
    for dtype in ("float16", "bfloat16", "float64"):
        for sizes in ((1, 1, 1), (1, 70, 33), (7, 65, 19), (70, 17, 270), (3, 4, 0)):
            yield gemm_case(f"{dtype} {sizes}", sizes, dtype=dtype)
        for ta, tb in itertools.product((0, 1), (0, 1)):
            yield gemm_case(
                f"{dtype} ta={ta} tb={tb}", (9, 35, 70), dtype=dtype, ta=ta, tb=tb, with_c=True, beta=0.5
            )
            yield gemm_case(f"a row of {dtype} ta={ta} tb={tb}", (1, 35, 70), dtype=dtype, ta=ta, tb=tb)
    for dtype in ("float16", "bfloat16"):
        a, b, d = TensorLayout((9, 40), dtype), TensorLayout((40, 20), dtype), TensorLayout((9, 20))
        yield Case(f"{dtype} to float32", (a, b), (d,), terms=40)
        yield Case(f"{dtype} to float32, C is float32", (a, b, d), (d,), {"beta": 1.0}, terms=40)
        row = TensorLayout((20,), dtype)
        yield Case(f"{dtype} to float32, C is a row of {dtype}", (a, b, row), (d,), {"beta": 1.0}, terms=40)


def _layouts() -> Iterator[Case]:
    m, n, k = 9, 35, 40
    plain = TensorLayout((m, k)), TensorLayout((k, n)), TensorLayout((m, n))
    gaps = tuple(TensorLayout(item.shape, strides=(2 * item.shape[1] + 3, 2)) for item in plain)
    turned = tuple(transposed_in_memory(*item.shape) for item in plain)
    for which, name in enumerate(("A", "B", "D")):
        for kind, other in (("with gaps", gaps), ("transposed in memory", turned)):
            a, b, d = (other[i] if i == which else plain[i] for i in range(3))
            yield Case(f"{name} {kind}", (a, b), (d,), terms=k)
    many, wide, result = TensorLayout((70, 40)), TensorLayout((40, 32)), TensorLayout((70, 32))
    yield Case("rows of B with gaps between", (many, replace(wide, strides=(37, 1))), (result,), terms=40)
    yield Case("columns of A far apart", (replace(many, strides=(1, 1030)), wide), (result,), terms=40)
    far = transposed_in_memory(70, 512), TensorLayout((512, 5))
    yield Case("rows far apart, transposed in memory", far, (TensorLayout((70, 5)),), terms=512)
    yield Case("all with gaps", gaps[:2], gaps[2:], terms=k)
    yield Case("all transposed in memory", turned[:2], turned[2:], terms=k)
    for name, c in (
        ("a row", TensorLayout((n,))), ("a row of one matrix", TensorLayout((1, n))),
        ("a column", TensorLayout((m, 1))), ("one number", TensorLayout(())),
        ("transposed in memory", turned[2]), ("with gaps", gaps[2]),
    ):  # fmt: skip
        for alpha in (1.0, 0.5):
            attrs = {"alpha": alpha, "beta": 1.0}
            yield Case(f"C is {name}, alpha={alpha}", (*plain[:2], c), plain[2:], attrs, terms=k)
    column = TensorLayout((1, 40), strides=(1, 3))
    yield Case("a row with gaps", (column, plain[1]), (TensorLayout((1, n)),), terms=k)
    spread = TensorLayout((1, n), strides=(2 * n, 2))
    yield Case("a row to one with gaps", (TensorLayout((1, k)), plain[1]), (spread,), terms=k)


def _batches() -> Iterator[Case]:
    def case(name: str, a: Shape, b: Shape, d: Shape, c: Shape | None = None, **attrs: float) -> Case:
        given = (a, b) if c is None else (a, b, c)
        terms = a[-1]
        return Case(name, tuple(map(TensorLayout, given)), (TensorLayout(d),), attrs, terms=terms)

    yield case("rows of rows by a matrix", (3, 5, 40), (40, 20), (3, 5, 20))
    yield case("a matrix by each", (5, 40), (3, 40, 20), (3, 5, 20))
    yield case("each by each", (3, 7, 9), (3, 9, 20), (3, 7, 20))
    yield case("broadcast axes", (3, 1, 5, 9), (4, 9, 20), (3, 4, 5, 20))
    yield case("rows of each by a transposed matrix", (3, 1, 9), (20, 9), (3, 1, 20), tb=1)
    yield case("each with C", (3, 7, 9), (3, 9, 20), (3, 7, 20), (3, 7, 20), beta=0.5)
    yield case("each with a row", (3, 7, 9), (3, 9, 20), (3, 7, 20), (20,), beta=1.0)
    yield case("each with a row of its own", (3, 7, 9), (3, 9, 20), (3, 7, 20), (3, 1, 20), beta=1.0)
    yield case("a row of each by each", (4, 1, 9), (4, 9, 20), (4, 1, 20))
    yield case("a row of each by each transposed", (4, 1, 9), (4, 20, 9), (4, 1, 20), tb=1)
    yield case("each of none", (0, 7, 9), (0, 9, 20), (0, 7, 20))
    heads = TensorLayout((2, 4, 6, 8), strides=(192, 8, 32, 1))
    scores = TensorLayout((2, 4, 6, 6))
    yield Case("heads side by side", (heads, heads), (scores,), {"tb": 1}, terms=8)
    yield Case("heads side by side from scores", (scores, heads), (heads,), terms=6)
    half = TensorLayout((3, 7, 9), "float16")
    yield Case("each by each of float16", (half, TensorLayout((3, 9, 20), "float16")),
               (TensorLayout((3, 7, 20), "float16"),), terms=9)  # fmt: skip


def refusals() -> Iterator[Refusal]:
    a, b, d = TensorLayout((4, 5)), TensorLayout((5, 6)), TensorLayout((4, 6))
    square = TensorLayout((5, 5))
    half = TensorLayout((5, 5), "float16")
    whole = TensorLayout((5, 5), "int32")
    shapes = (
        ("k differs", (a, TensorLayout((4, 6))), d, "B is float32[4, 6], not [5, 6]"),
        ("D of another shape", (a, b), TensorLayout((6, 4)), "D is float32[6, 4], not [4, 6]"),
        ("C of another shape", (a, b, TensorLayout((5,))), d, "C: an input is [5], the output is [4, 6]"),
        ("C of a larger rank", (a, b, TensorLayout((1, 4, 6))), d, "C: an input is [1, 4, 6], the output"),
        ("A of a larger rank", (TensorLayout((1, 4, 5)), b), d, "A is [1, 4, 5], D, to which it broadc"),
        ("A of rank 1", (TensorLayout((5,)), b), d, "A has rank 1, less than 2"),
        ("B of rank 1", (a, TensorLayout((5,))), d, "B has rank 1, less than 2"),
        ("D of rank 1", (a, b), TensorLayout((6,)), "D has rank 1, less than 2"),
        ("B of another batch", (TensorLayout((2, 4, 5)), TensorLayout((3, 5, 6))), TensorLayout((2, 4, 6)),
         "B is [3, 5, 6], D, to which it broadcasts, is [2, 4, 6]"),
        ("int32", (whole, whole), whole, " is int32, not "),
        ("B of another dtype", (square, half), square, "B is float16, not float32"),
        ("D of another dtype", (square, square), half, "D is float16, not float32"),
        ("C of another dtype", (half, half, TensorLayout((5, 5), "bfloat16")), half,
         "C is bfloat16, not float16"),
    )  # fmt: skip
    for name, inputs, output, match in shapes:
        yield Refusal(name, inputs, (output,), match)
    attrs = (
        ("ta makes k differ", {"ta": 1}, "B is float32[5, 6], not [4, 6]"),
        ("tb makes k differ", {"tb": 1}, "B is float32[5, 6], not [5, 5]"),
        ("ta is 2", {"ta": 2}, "ta is 2, not 0 or 1"),
        ("tb is -1", {"tb": -1}, "tb is -1, not 0 or 1"),
        ("precision is 2", {"precision": 2}, "precision is 2, not 0 or 1"),
        ("beta without C", {"beta": 1.0}, "there is no C"),
    )
    for name, values, match in attrs:
        yield Refusal(name, (a, b), (d,), match, attrs=values)
    for i in range(2):
        yield Refusal(
            f"D in place of {'AB'[i]}", (square, square), (square,), f"output 0 overlaps input {i}",
            overlaps={0: (i, 0)}, status="InvalidArgument"
        )  # fmt: skip
    yield Refusal(
        "D a part of C",
        (TensorLayout((4, 5)), TensorLayout((5, 6)), d),
        (d,),
        "may be the same tensor, but not a part of it",
        attrs={"beta": 1.0},
        overlaps={0: (2, 6)},
        status="InvalidArgument",
    )
    yield from misuses(OP, Case("right", (square, square), (square,)))


GEMM = OpRow("gemm", OP, "GEMM", reference, cases, refusals)
