"""The row of rotary embeddings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from npu_cuda.testing.case import Array, Attrs, Case, OpRow, Refusal, TensorLayout
from npu_cuda.testing.misuse import misuses
from npu_cuda.testing.values import FLOATS

Shape = tuple[int, ...]


def reference(inputs: Sequence[Array], attrs: Attrs, shapes: Sequence[Shape]) -> list[Array]:  # noqa: ARG001
    cos, sin, *items = inputs
    width = cos.shape[-1]
    results = []
    for x in items:
        turned, rest = x[..., :width], x[..., width:]
        first, second = turned[..., : width // 2], turned[..., width // 2 :]
        turned = turned * cos + np.concatenate((-second, first), -1) * sin
        results.append(np.concatenate((turned, rest), -1))
    return results


def _case(
    name: str, shapes: Sequence[Shape], angles: Shape, dtype: str = "float32", *, split: bool = False
) -> Case:
    """Return a case; ``split``: the heads are side by side, as a linear layer makes them."""
    rows = tuple(_rows(shape, dtype, split=split) for shape in shapes)
    turns = TensorLayout(angles, dtype)
    return Case(name, (turns, turns, *rows), rows)


def _rows(shape: Shape, dtype: str, *, split: bool) -> TensorLayout:
    if not split:
        return TensorLayout(shape, dtype)
    batch, heads, count, size = shape
    return TensorLayout((batch, heads, count, size), dtype, (count * heads * size, size, heads * size, 1))


def cases() -> Iterator[Case]:
    for dtype in (*FLOATS, "float64"):
        yield _case(f"{dtype}, one token", [(1, 6, 1, 48), (1, 2, 1, 48)], (1, 1, 1, 48), dtype)
        yield _case(f"{dtype}, part of rows", [(2, 3, 5, 20)], (2, 1, 5, 12), dtype, split=True)
        yield _case(f"{dtype}, odd sizes", [(2, 3, 7, 14), (2, 1, 7, 15)], (1, 7, 14), dtype)
    yield _case("heads side by side", [(2, 8, 33, 64), (2, 2, 33, 64)], (2, 1, 33, 64), split=True)
    yield _case("many rows", [(2, 12, 70, 32)], (1, 1, 70, 32))
    yield _case("vectors", [(6,), (9,)], (6,))
    yield _case("nothing is turned", [(3, 5)], (0,))
    yield _case("no rows", [(2, 0, 8), (0, 4, 8)], (8,))
    x, turns = TensorLayout((3, 4, 8), strides=(32, 1, 4)), TensorLayout((4, 6), strides=(1, 4))
    y = TensorLayout((3, 4, 8), strides=(100, 20, 2))
    yield Case("strides along rows", (turns, TensorLayout((4, 6)), x), (y,))
    wide = TensorLayout((2, 3, 8))
    yield Case("angles of all", (TensorLayout((3, 8), strides=(0, 1)), TensorLayout((3, 8)), wide), (wide,))
    special = TensorLayout((4,)), TensorLayout((4,)), TensorLayout((300, 4))
    yield Case("special values", special, special[2:], special=True)


def refusals() -> Iterator[Refusal]:
    x, turns = TensorLayout((2, 3, 8)), TensorLayout((3, 8))

    def refusal(
        name: str,
        match: str,
        cos: TensorLayout = turns,
        sin: TensorLayout | None = None,
        given: TensorLayout = x,
        made: TensorLayout = x,
    ) -> Refusal:
        return Refusal(name, (cos, sin or cos, given), (made,), match)

    yield refusal("integers", "x is int32, not float32", given=TensorLayout((2, 3, 8), "int32"))
    yield refusal("another dtype", "sin is float32, not float16", TensorLayout((3, 8), "float16"), turns)
    yield refusal("another sin", "cos is [3, 8], sin is [1, 8]", sin=TensorLayout((1, 8)))
    yield refusal("an odd width", "not rows of an even number of elements", TensorLayout((3, 7)))
    yield refusal("a scalar", "not rows of an even number of elements", TensorLayout(()))
    yield refusal("wider than rows", "does not broadcast", TensorLayout((3, 10)))
    yield refusal("other rows", "does not broadcast", TensorLayout((2, 8)))
    yield refusal("more axes", "does not broadcast", TensorLayout((1, 2, 3, 8)))
    yield refusal("another result", "x is [2, 3, 8], y is [2, 8, 3]", made=TensorLayout((2, 8, 3)))
    yield from misuses("Rotary", Case("right", (turns, turns, x), (x,)))


ROTARY = OpRow("rotary", "Rotary", None, reference, cases, refusals, sized=True)
