"""The row of attention."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from npu_cuda.testing.case import Array, Attrs, Case, OpRow, Refusal, TensorLayout
from npu_cuda.testing.misuse import misuses
from npu_cuda.testing.values import FLOATS


@dataclass(frozen=True, slots=True)
class _Attention:
    """Sizes of an attention; ``split``: the heads are side by side, as a linear layer makes them."""

    batch: int = 2
    heads: int = 4
    groups: int = 4
    queries: int = 7
    keys: int = 7
    size: int = 8
    value_size: int = 8
    dtype: str = "float32"
    split: bool = False

    def _layout(self, heads: int, rows: int, size: int) -> TensorLayout:
        shape = (self.batch, heads, rows, size)
        strides = (rows * heads * size, size, heads * size, 1) if self.split else None
        return TensorLayout(shape, self.dtype, strides)

    def inputs(self) -> tuple[TensorLayout, TensorLayout, TensorLayout]:
        q = self._layout(self.heads, self.queries, self.size)
        k = self._layout(self.groups, self.keys, self.size)
        return q, k, self._layout(self.groups, self.keys, self.value_size)

    def outputs(self, *, with_lse: bool) -> tuple[TensorLayout, ...]:
        lse = TensorLayout((self.batch, self.heads, self.queries))
        return (self._layout(self.heads, self.queries, self.value_size), *([lse] if with_lse else []))


ATTENTIONS = (
    ("one query", _Attention(queries=1, keys=33)),
    ("one query, other values", _Attention(queries=1, keys=40, size=16, value_size=20)),
    ("one query, other keys", _Attention(queries=1, keys=40, size=20, value_size=16)),
    ("one key", _Attention(queries=3, keys=1)),
    ("one head", _Attention(batch=1, heads=1, groups=1, queries=70, keys=70, size=64, value_size=64)),
    ("many keys", _Attention(batch=1, heads=2, groups=2, queries=20, keys=211, size=16, value_size=24)),
    ("other values", _Attention(queries=40, keys=9, size=5, value_size=3)),
    ("odd sizes", _Attention(batch=1, queries=40, keys=9, size=40, value_size=20)),
    ("no values", _Attention(value_size=0)),
    ("grouped heads", _Attention(heads=6, groups=2, queries=13, keys=17)),
    ("one group, one query", _Attention(heads=8, groups=1, queries=1, keys=100, size=32, value_size=32)),
    ("heads side by side", _Attention(queries=33, keys=33, split=True)),
    ("heads of whole vectors", _Attention(queries=70, keys=99, size=16, value_size=32, split=True)),
    (
        "rows far apart",
        _Attention(heads=32, groups=32, queries=9, keys=20, size=16, value_size=16, split=True),
    ),
)


def reference(inputs: Sequence[Array], attrs: Attrs, shapes: Sequence[tuple[int, ...]]) -> list[Array]:
    q, k, v, *mask = inputs
    repeats = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, repeats, 1), np.repeat(v, repeats, 1)
    scores = q @ np.swapaxes(k, -1, -2) * (float(np.float32(attrs["scale"])) or 1 / np.sqrt(q.shape[-1]))
    if mask:
        is_truth = mask[0].dtype == bool
        scores = scores + (np.where(mask[0], 0.0, -np.inf) if is_truth else mask[0])
    if attrs["is_causal"]:
        scores = np.where(np.tri(*scores.shape[-2:], dtype=np.bool_), scores, -np.inf)
    most = scores.max(-1, keepdims=True, initial=-np.inf)
    weights = np.exp(scores - np.where(most == -np.inf, 0, most))
    total = weights.sum(-1, keepdims=True)
    with np.errstate(divide="ignore"):
        results = [weights @ v / np.where(total == 0, 1, total), (most + np.log(total))[..., 0]]
    return results[: len(shapes)]


def _gradient(inputs: Sequence[Array], attrs: Attrs) -> list[Array]:
    """Return the gradients by the chain rule; o and lse need not be those of q, k and v."""
    d_o, q, k, v, o, lse, *mask = inputs
    scale = float(np.float32(attrs["scale"])) or 1 / np.sqrt(q.shape[-1])
    scores = q @ np.swapaxes(k, -1, -2) * scale
    if mask:
        scores = scores + (np.where(mask[0], 0.0, -np.inf) if mask[0].dtype == bool else mask[0])
    if attrs["is_causal"]:
        scores = np.where(np.tri(*scores.shape[-2:], dtype=np.bool_), scores, -np.inf)
    weights = np.exp(scores - lse[..., None])
    delta = (d_o * o).sum(-1, keepdims=True)
    d_scores = weights * (d_o @ np.swapaxes(v, -1, -2) - delta) * scale
    return [d_scores @ k, np.swapaxes(d_scores, -1, -2) @ q, np.swapaxes(weights, -1, -2) @ d_o]


def _gradient_cases() -> Iterator[Case]:
    for name, sizes in ATTENTIONS:
        if sizes.heads != sizes.groups:
            continue
        q, k, v = sizes.inputs()
        o, lse = sizes.outputs(with_lse=True)
        # A small scale: lse is made up, and exp(score - lse) is not to be large.
        for is_causal in (0, 1):
            attrs = {"is_causal": is_causal, "scale": 0.03125}
            further = ", causal" if is_causal else ""
            yield Case(f"{name}{further}", (o, q, k, v, o, lse), (q, k, v), attrs, terms=200)
    for dtype in FLOATS:
        half = _Attention(queries=19, keys=23, dtype=dtype)
        q, k, v = half.inputs()
        o, lse = half.outputs(with_lse=True)
        for kind in ("bool", dtype):
            mask = TensorLayout((1, 4, 19, 23), kind)
            yield Case(f"{dtype}, mask {kind}", (o, q, k, v, o, lse, mask), (q, k, v), terms=200)


def _gradient_refusals() -> Iterator[Refusal]:
    sizes = _Attention()
    q, k, v = sizes.inputs()
    o, lse = sizes.outputs(with_lse=True)
    other, half = TensorLayout((2, 4, 7, 9)), TensorLayout(q.shape, "float16")
    few = TensorLayout((2, 2, 7, 8))
    for name, inputs, outputs, match in (
        ("do of another size", (other, q, k, v, o, lse), (q, k, v), "do is [2, 4, 7, 9], o is [2, 4, 7, 8]"),
        ("do of float16", (half, q, k, v, o, lse), (q, k, v), "do is float16, not float32"),
        ("grouped heads", (o, q, few, few, o, lse), (q, few, few), "k has 2 heads, q has 4"),
        ("dk of another size", (o, q, k, v, o, lse), (q, other, v), "dk is [2, 4, 7, 9], k is [2, 4, 7, 8]"),
        ("dv of float16", (o, q, k, v, o, lse), (q, k, half), "dv is float16, not float32"),
    ):
        yield Refusal(name, inputs, outputs, match)
    yield from misuses("AttentionGradient", Case("right", (o, q, k, v, o, lse), (q, k, v)))


def _masked_cases(dtype: str) -> Iterator[Case]:
    square = _Attention(queries=19, keys=23, dtype=dtype)
    shapes = (19, 23), (1, 23), (2, 1, 19, 23), (1, 4, 19, 1), (2, 4, 1, 23)
    row = _Attention(heads=6, groups=2, queries=1, keys=150, size=20, value_size=12, dtype=dtype, split=True)
    rows = (1, 150), (2, 6, 1, 150), (2, 1, 1, 1)
    vectors = _Attention(heads=3, groups=3, queries=1, keys=70, size=16, value_size=32, dtype=dtype)
    vector_rows = (2, 1, 1, 70), (1, 3, 1, 70)
    grouped = _Attention(heads=4, groups=2, queries=1, keys=70, size=32, value_size=16, dtype=dtype)
    for which, attention, masks in (
        ("", square, shapes),
        ("one query, ", row, rows),
        ("one query, whole vectors, ", vectors, vector_rows),
        ("one query, whole vectors, grouped heads, ", grouped, ((2, 4, 1, 70),)),
    ):
        for kind in ("bool", dtype):
            for shape in masks:
                inputs = *attention.inputs(), TensorLayout(shape, kind)
                outputs = attention.outputs(with_lse=attention.queries == 1)
                name = f"{which}{dtype}, mask {kind}{list(shape)}"
                yield Case(name, inputs, outputs, terms=attention.keys)


def cases() -> Iterator[Case]:
    for name, attention in ATTENTIONS:
        for is_causal in (0, 1):
            further = ", causal" if is_causal else ""
            attrs = {"is_causal": is_causal, "scale": 0.25 * is_causal}
            outputs = attention.outputs(with_lse=True)
            yield Case(f"{name}{further}", attention.inputs(), outputs, attrs, terms=attention.keys)
    for dtype in FLOATS:
        yield from _masked_cases(dtype)
    for kind in ("bool", "float32"):
        for strides in ((0, 0, 23, 1), (0, 0, 1, 0), (23, 0, 0, 1), (19, 0, 1, 0), (0, 0, 0, 0)):
            mask = TensorLayout((2, 4, 19, 23), kind, strides)
            outputs = _Attention(queries=19, keys=23).outputs(with_lse=False)
            inputs = _Attention(queries=19, keys=23).inputs()
            yield Case(f"mask {kind}, expanded {list(strides)}", (*inputs, mask), outputs, terms=23)
    small = _Attention(heads=6, groups=3, queries=5, keys=6)
    mask = TensorLayout((5, 6), strides=(1, 9))
    yield Case("grouped heads, mask", (*small.inputs(), mask), small.outputs(with_lse=True), {"is_causal": 1})
    for size in (16, 20):
        apart = _Attention(queries=1, keys=40, size=size, value_size=size)
        q, *_ = apart.inputs()
        spread = TensorLayout((2, 4, 40, size), strides=(4 * 40 * size, 40 * size, 1, 40))
        outputs = apart.outputs(with_lse=True)
        yield Case(f"one query, elements of {size} far apart", (q, spread, spread), outputs, terms=40)
    for name, empty in (("no queries", _Attention(queries=0)), ("no keys", _Attention(keys=0))):
        yield Case(name, empty.inputs(), empty.outputs(with_lse=False))


def refusals() -> Iterator[Refusal]:
    right = _Attention()
    tensors = dict(zip("qkvo", (*right.inputs(), *right.outputs(with_lse=False)), strict=True))

    def refusal(name: str, match: str, is_causal: int = 0, **changed: TensorLayout) -> Refusal:
        q, k, v, o, *mask = (tensors | changed).values()
        return Refusal(name, (q, k, v, *mask), (o,), match, {"is_causal": is_causal})

    other: Literal["float16"] = "float16"
    yield refusal("q of three axes", "q has 3 axes, not 4", q=TensorLayout((4, 7, 8)))
    yield refusal("k of three axes", "k or v has not 4 axes", k=TensorLayout((4, 7, 8)))
    yield refusal("integers", "is int32, not ", q=TensorLayout((2, 4, 7, 8), "int32"))
    yield refusal("k of another dtype", "k is float16", k=TensorLayout((2, 4, 7, 8), other))
    yield refusal("heads that do not fit", "4 heads are not a multiple of 3", k=TensorLayout((2, 3, 7, 8)))
    yield refusal(
        "k of another size", "k is float32[2, 4, 7, 9], not [2, 4, 7, 8]", k=TensorLayout((2, 4, 7, 9))
    )
    yield refusal(
        "v of other keys", "v is float32[2, 4, 6, 8], not [2, 4, 7, 8]", v=TensorLayout((2, 4, 6, 8))
    )
    yield refusal(
        "another result", "o is float32[2, 4, 8, 7], not [2, 4, 7, 8]", o=TensorLayout((2, 4, 8, 7))
    )
    yield refusal("is_causal is 2", "is_causal is 2, not 0 or 1", is_causal=2)
    yield refusal(
        "mask of integers", "the mask is int32, neither bool nor float32", mask=TensorLayout((7, 7), "int32")
    )
    yield refusal("another mask", "not broadcast to 7 queries and 7 keys", mask=TensorLayout((7, 6)))
    lse = TensorLayout((2, 4, 7), other)
    yield Refusal("lse of float16", right.inputs(), (tensors["o"], lse), "lse is float16, not float32")
    yield from misuses("Attention", Case("right", right.inputs(), right.outputs(with_lse=True)))


ATTENTION_ROWS = (
    OpRow("attention", "Attention", "ATTN", reference, cases, refusals, sized=True),
    OpRow("attention_gradient", "AttentionGradient", "ATTG", _gradient, _gradient_cases, _gradient_refusals),
)
