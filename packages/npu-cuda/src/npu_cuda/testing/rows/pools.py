"""The rows of pools and of resampling."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from npu_cuda.testing.case import Array, Attrs, Case, OpRow, Refusal, TensorLayout
from npu_cuda.testing.misuse import misuses

_WINDOW, _ADAPTIVE, _NEAREST, _NEAREST_EXACT, _LINEAR, _LINEAR_ALIGNED = range(6)
_AXES = "dhw"


@dataclass(frozen=True, slots=True)
class _Pool:
    """Sizes and attributes of a pool.

    Attributes:
        image: Its shape, of channels and perhaps a batch before the sizes.
        pooled: The sizes of the result.
        numbers: Attributes, one for all axes or one for each.
    """

    name: str
    image: tuple[int, ...]
    pooled: tuple[int, ...]
    mode: int = _WINDOW
    numbers: tuple[tuple[str, Any], ...] = ()
    dtype: str = "float32"
    strides: str = "contiguous"

    @property
    def attrs(self) -> dict[str, Any]:
        axes = len(self.pooled)
        found: dict[str, Any] = {"axes": axes, "mode": self.mode}
        for name, given in self.numbers:
            if name in {"counts_padding", "divisor"}:
                found[name] = given
            else:
                numbers = given if isinstance(given, tuple) else (given,) * axes
                found |= {f"{name}_{axis}": one for axis, one in zip(_AXES[-axes:], numbers, strict=True)}
        return found

    def _layout(self, shape: tuple[int, ...], dtype: str) -> TensorLayout:
        if self.strides == "contiguous":
            return TensorLayout(shape, dtype)
        channels = len(shape) - len(self.pooled) - 1
        order = [axis for axis in range(len(shape)) if axis != channels]
        order = order[::-1] if self.strides == "reversed" else order
        order.append(channels)
        strides, step = [0] * len(shape), 2 if self.strides == "apart" else 1
        for axis in reversed(order):
            strides[axis], step = step, step * shape[axis]
        return TensorLayout(shape, dtype, tuple(strides))

    @property
    def x(self) -> TensorLayout:
        return self._layout(self.image, self.dtype)

    @property
    def y(self) -> TensorLayout:
        return self._layout((*self.image[: -len(self.pooled)], *self.pooled), self.dtype)

    @property
    def places(self) -> TensorLayout:
        return self._layout(self.y.shape, "int64")


def _windows(kernel: Any, stride: Any, padding: Any = 0, **others: Any) -> tuple[tuple[str, Any], ...]:
    return (("kernel", kernel), ("stride", stride), ("padding", padding), *others.items())


_PLAIN = _windows(3, 2, 1)
_SOLID = _windows((3, 2, 3), (2, 2, 2), (0, 0, 1))
MAXIMA = (
    _Pool("3 by 2", (2, 5, 9, 8), (5, 4), numbers=_PLAIN),
    _Pool("channels last", (2, 20, 9, 8), (5, 4), numbers=_PLAIN, strides="last"),
    _Pool("few channels last", (1, 3, 9, 70), (5, 35), numbers=_PLAIN, strides="last"),
    _Pool("apart", (2, 5, 9, 8), (5, 4), numbers=_PLAIN, strides="apart"),
    _Pool("reversed", (2, 5, 9, 8), (5, 4), numbers=_PLAIN, strides="reversed"),
    _Pool("2 by 2, one channel", (1, 1, 8, 64), (4, 32), numbers=_windows(2, 2)),
    _Pool("overlap", (3, 17, 7, 5), (5, 3), numbers=_windows(3, 1), strides="last"),
    _Pool("dilated", (1, 2, 12, 11), (4, 4), numbers=_windows(3, (2, 2), 1, dilation=(3, 2))),
    _Pool("ceil", (2, 6, 7), (4,), numbers=_windows(2, 2)),
    _Pool("gaps", (4, 10), (4,), numbers=_windows(2, 3)),
    _Pool("3 axes", (1, 18, 5, 6, 7), (2, 3, 4), numbers=_SOLID, strides="last"),
    _Pool("3 axes, no batch", (2, 5, 6, 7), (2, 3, 4), numbers=_SOLID),
    _Pool("adaptive", (2, 3, 7, 10), (3, 4), _ADAPTIVE),
    _Pool("adaptive, more", (1, 19, 3, 4), (5, 4), _ADAPTIVE, strides="last"),
    *(
        _Pool(f"{dtype}, {strides}", (2, 17, 6, 5), (3, 3), numbers=_PLAIN, dtype=dtype, strides=strides)
        for dtype in ("float16", "bfloat16", "float64")
        for strides in ("contiguous", "last")
    ),
)  # fmt: skip
MEANS = (
    *(pool for pool in MAXIMA if pool.name != "dilated"),
    _Pool("no padding counts", (2, 5, 9, 8), (5, 4), numbers=(*_PLAIN, ("counts_padding", 0))),
    _Pool("ceil, padded", (1, 4, 8, 7), (4, 4), numbers=_windows(3, 2, 0)),
    _Pool("divisor", (2, 5, 9, 8), (5, 4), numbers=(*_PLAIN, ("divisor", 7))),
    _Pool("a large window", (1, 3, 9, 8), (1, 1), numbers=_windows((9, 8), 1)),
    *(
        _Pool(f"{name}, {strides}, to {pooled}", (2, 18, 5, 7), pooled, mode, strides=strides)
        for mode, name in enumerate(("nearest", "nearest exact", "linear", "linear aligned"), _NEAREST)
        for pooled in ((10, 14), (3, 4), (5, 1), (8, 9))
        for strides in ("contiguous", "last")
    ),
    *(
        _Pool(f"{mode}, ratio, to {pooled}", (2, 3, 5, 7), pooled, mode, (("ratio", (1 / 1.9, 1 / 2.3)),))
        for mode in (_NEAREST, _NEAREST_EXACT, _LINEAR)
        for pooled in ((9, 16), (5, 14))
    ),
    *(
        _Pool(f"{mode}, {axes} axes, {kind}", (2, 3, 4, 5, 6)[: axes + 2], (7, 8, 9)[:axes], mode, (), kind)
        for mode in (_NEAREST, _LINEAR, _LINEAR_ALIGNED)
        for axes, kind in ((1, "float16"), (3, "float32"), (2, "bfloat16"), (2, "float64"))
    ),
)  # fmt: skip


def _at(place: Sequence[int]) -> Any:
    """Return the index of a place in each channel."""
    return (..., *place)


def _window(attrs: Attrs, axis: str, size: int, count: int, at: int) -> range:
    if attrs["mode"] == _ADAPTIVE:
        return range(at * size // count, -(-(at + 1) * size // count))
    kernel, stride, padding, dilation = (
        int(attrs[f"{name}_{axis}"]) for name in ("kernel", "stride", "padding", "dilation")
    )
    begin = at * stride - padding
    return range(begin, begin + kernel * dilation, dilation)


def _extent(attrs: Attrs, axis: str, size: int, count: int, at: int) -> range:
    """Return the window without the gaps of its dilation."""
    window = _window(attrs, axis, size, count, at)
    return range(window[0], window[-1] + 1)


def _maximum(inputs: Sequence[Array], attrs: Attrs, shapes: Sequence[tuple[int, ...]]) -> list[Array]:
    (x,), axes = inputs, int(attrs["axes"])
    sizes = x.shape[-axes:]
    y, places = np.zeros(shapes[0]), np.zeros(shapes[0], np.int64)
    for at in itertools.product(*map(range, shapes[0][-axes:])):
        windows = [
            [i for i in _window(attrs, axis, size, count, position) if 0 <= i < size]
            for axis, size, count, position in zip(_AXES[-axes:], sizes, shapes[0][-axes:], at, strict=True)
        ]
        candidates = list(itertools.product(*windows))
        values = np.stack([x[_at(place)] for place in candidates])
        best = np.argmax(values, 0)
        last_nan = len(candidates) - 1 - np.argmax(np.isnan(values)[::-1], 0)
        best = np.where(np.isnan(values).any(0), last_nan, best)
        y[_at(at)] = np.take_along_axis(values, best[None], 0)[0]
        flat = np.array([np.ravel_multi_index(place, sizes) for place in candidates])
        places[_at(at)] = flat[best]
    return [y, places][: len(shapes)]


def _maximum_gradient(
    inputs: Sequence[Array], attrs: Attrs, shapes: Sequence[tuple[int, ...]]
) -> list[Array]:
    (dy, places), axes = inputs, int(attrs["axes"])
    leading = dy.shape[:-axes]
    dx = np.zeros((int(np.prod(leading)), int(np.prod(shapes[0][-axes:]))))
    flat, where = dy.reshape(len(dx), -1), places.reshape(len(dx), -1)
    for channel in range(len(dx)):
        for position in np.ndindex(*dy.shape[-axes:]):
            at = int(np.ravel_multi_index(position, dy.shape[-axes:]))
            place = np.unravel_index(where[channel, at], shapes[0][-axes:])
            named = all(
                i in _extent(attrs, axis, size, count, one)
                for i, axis, size, count, one in zip(
                    place, _AXES[-axes:], shapes[0][-axes:], dy.shape[-axes:], position, strict=True
                )
            )
            if named:
                dx[channel, where[channel, at]] += flat[channel, at]
    return [dx.reshape(shapes[0])]


def _matrix(attrs: Attrs, axis: str, size: int, count: int) -> Array:
    """Return the weights by which a result along an axis is made of the image, in float64."""
    matrix, mode = np.zeros((count, size)), attrs["mode"]
    if mode in {_WINDOW, _ADAPTIVE}:
        for at in range(count):
            window = _window(attrs, axis, size, count, at)
            inside = [i for i in window if 0 <= i < size]
            padded = (
                len(window) if mode == _ADAPTIVE else sum(i < size + attrs[f"padding_{axis}"] for i in window)
            )
            divisor = padded if attrs["counts_padding"] else len(inside)
            if attrs["divisor"]:
                divisor = attrs["divisor"] if axis == "w" else 1
            matrix[at, inside] = 1 / divisor
        return matrix
    takes_ratio = mode == _NEAREST_EXACT or count not in {size, 2 * size if mode == _NEAREST else size}
    ratio, places = (takes_ratio and attrs[f"ratio_{axis}"]) or size / count, np.arange(count)
    source: Array = places * ((size - 1) / max(1, count - 1))
    if mode in {_NEAREST, _NEAREST_EXACT}:  # the rounding of float32 decides which is nearest
        shift = 0.0 if mode == _NEAREST else 0.5
        source = (places + shift).astype(np.float32) * np.float32(ratio)
    elif mode == _LINEAR:
        source = (places + 0.5) * ratio - 0.5
    source = np.maximum(source, 0)
    first = np.minimum(source.astype(np.int64), size - 1)
    weight = np.minimum(source - first, 1) if mode in {_LINEAR, _LINEAR_ALIGNED} else 0 * source
    matrix[places, first] += 1 - weight
    matrix[places, np.minimum(first + 1, size - 1)] += weight
    return matrix


def _resampled(inputs: Sequence[Array], attrs: Attrs, shapes: Sequence[tuple[int, ...]]) -> list[Array]:
    (x,), axes = inputs, int(attrs["axes"])
    for place in range(-axes, 0):
        size, count = x.shape[place], shapes[0][place]
        axis = _AXES[place]
        if attrs["transposed"]:
            matrix = _matrix(attrs, axis, count, size).T
        else:
            matrix = _matrix(attrs, axis, size, count)
        x = np.moveaxis(np.tensordot(matrix, x, (1, place)), 0, place)
    return [x]


def _max_cases() -> Iterator[Case]:
    for pool in MAXIMA:
        yield Case(pool.name, (pool.x,), (pool.y,), pool.attrs, exact=True)
        yield Case(f"{pool.name}, places", (pool.x,), (pool.y, pool.places), pool.attrs, exact=True)
    for strides in ("contiguous", "last"):
        special = _Pool("special", (4, 36, 8, 8), (5, 5), numbers=_PLAIN, strides=strides)
        yield Case(
            f"special, {strides}",
            (special.x,),
            (special.y, special.places),
            special.attrs,
            special=True,
            exact=True,
        )
    empty = _Pool("no channels", (2, 0, 4, 4), (2, 2), numbers=_windows(2, 2))
    yield Case(empty.name, (empty.x,), (empty.y, empty.places), empty.attrs)


def _gradient_cases() -> Iterator[Case]:
    for pool in MAXIMA:
        elements = int(np.prod(pool.image[-len(pool.pooled) :]))
        yield Case(pool.name, (pool.y, pool.places), (pool.x,), pool.attrs, indices={1: elements}, terms=4)


def _resample_cases() -> Iterator[Case]:
    for pool in MEANS:
        for transposed in (0, 1):
            images = ((pool.x,), (pool.y,)) if not transposed else ((pool.y,), (pool.x,))
            further = ", transposed" if transposed else ""
            yield Case(f"{pool.name}{further}", *images, {**pool.attrs, "transposed": transposed}, terms=10)


def _wrong(pool: _Pool, attrs: Attrs) -> Iterator[tuple[str, tuple[TensorLayout, TensorLayout], Attrs, str]]:
    """Yield an image, a result and attributes that no pool has, and why."""
    x, y = pool.x, pool.y
    yield "no axes", (x, y), {**attrs, "axes": 0}, "axes is 0, not 1, 2 or 3"
    yield "another mode", (x, y), {**attrs, "mode": 9}, "mode is 9, not from 0 to"
    yield "no stride", (x, y), {**attrs, "stride_w": 0}, "a kernel, a stride or a dilation is 0"
    yield "a negative padding", (x, y), {**attrs, "padding_h": -1}, "a padding is -1"
    yield (
        "too many windows",
        (x, y),
        {**attrs, "stride_h": 9},
        "an axis of 9 has not 5 windows by a stride of 9",
    )
    integers = TensorLayout(x.shape, "int64")
    yield "integers", (integers, y), attrs, "a tensor is int64, not a float"
    half = TensorLayout(y.shape, "float16")
    yield "another dtype", (x, half), attrs, "the result is float16, not float32"
    other = TensorLayout((2, 4, 5, 4))
    yield "other channels", (x, other), attrs, "not of the same channels and 2 axes"
    nothing = TensorLayout((2, 5, 0, 8))
    yield "no elements", (nothing, y), {**attrs, "mode": 1}, "float32[2, 5, 0, 8], has no elements"


def _max_refusals() -> Iterator[Refusal]:
    pool = MAXIMA[0]
    for name, (x, y), attrs, match in _wrong(pool, pool.attrs):
        yield Refusal(name, (x,), (y,), match, attrs)
    small = TensorLayout((2, 5, 5, 3), "int64")
    floats = TensorLayout(pool.y.shape)
    for name, places, match in (
        ("small places", small, "places is"),
        ("places of floats", floats, "places is float32, not int64"),
    ):
        yield Refusal(name, (pool.x,), (pool.y, places), match, pool.attrs)
    yield from misuses("MaxPool", Case("right", (pool.x,), (pool.y, pool.places), pool.attrs))


def _gradient_refusals() -> Iterator[Refusal]:
    pool = MAXIMA[0]
    for name, (x, y), attrs, match in _wrong(pool, pool.attrs):
        yield Refusal(
            name, (y, pool.places), (x,), match.replace("the result is float16, not float32", "not"), attrs
        )
    floats = TensorLayout(pool.y.shape)
    yield Refusal("places of floats", (pool.y, floats), (pool.x,), "places is float32", pool.attrs)
    yield from misuses("MaxPoolBwd", Case("right", (pool.y, pool.places), (pool.x,), pool.attrs))


def _resample_refusals() -> Iterator[Refusal]:
    pool = MEANS[0]
    for name, (x, y), attrs, match in _wrong(pool, pool.attrs):
        yield Refusal(name, (x,), (y,), match, attrs)
    for name, field, number, match in (
        ("a dilation", "dilation_h", 2, "a mean has a dilation of 2"),
        ("a flag", "transposed", 2, "a flag is 2, not 0 or 1"),
        ("a negative ratio", "ratio_w", -1.0, "a ratio is -1"),
        ("no ratio", "ratio_w", float("nan"), "a ratio is nan"),
    ):
        yield Refusal(name, (pool.x,), (pool.y,), match, {**pool.attrs, field: number})
    large = TensorLayout((1, 1, 70000)), TensorLayout((1, 1, 70000))
    match = "an adaptive pool makes 70000 of 70000"
    yield Refusal("too adaptive", large[:1], large[1:], match, {"axes": 1, "mode": 1})
    yield from misuses("Resample", Case("right", (pool.x,), (pool.y,), pool.attrs))


POOL_ROWS = (
    OpRow("max_pool", "MaxPool", "MAXP", _maximum, _max_cases, _max_refusals, sized=True),
    OpRow(
        "max_pool_bwd",
        "MaxPoolBwd",
        "MXPB",
        _maximum_gradient,
        _gradient_cases,
        _gradient_refusals,
        sized=True,
    ),
    OpRow("resample", "Resample", "RSMP", _resampled, _resample_cases, _resample_refusals, sized=True),
)
