"""References of the ops in ``index.py``, by NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from npu_cuda.testing.case import Array, Attrs

Inputs = Sequence[Array]
Shapes = Sequence[tuple[int, ...]]  # of the outputs


def _axis(attrs: Attrs, rank: int) -> int:
    axis = int(attrs["axis"])
    return axis + rank if axis < 0 else axis


def _places(axis: int, indices: Sequence[Array]) -> tuple[Any, ...]:
    return (*[slice(None)] * axis, *indices)


def select(inputs: Inputs, attrs: Attrs, _: Shapes) -> list[Array]:
    x, *indices = inputs
    return [x[_places(_axis(attrs, x.ndim), indices)]]


def put(inputs: Inputs, attrs: Attrs, shapes: Shapes) -> list[Array]:
    x, values, *indices = inputs
    y, places = x.copy(), _places(_axis(attrs, x.ndim), indices)
    saved = x[places]
    if attrs["accumulate"]:
        np.add.at(y, places, values)
    else:
        y[places] = values
    return [y, saved][: len(shapes)]


def _store(y: Array, place: tuple[int, ...], value: Any, *, adds: bool) -> None:
    with np.errstate(over="ignore"):
        y[place] = y[place] + value if adds else value


def scatter(inputs: Inputs, attrs: Attrs, _: Shapes) -> list[Array]:
    x, index, source = inputs
    y, axis = x.copy(), _axis(attrs, x.ndim)
    for place in np.ndindex(index.shape):
        target = (*place[:axis], int(index[place]), *place[axis + 1 :])
        _store(y, target, source[place] if source.ndim else source, adds=bool(attrs["accumulate"]))
    return [y]


def gather(inputs: Inputs, attrs: Attrs, _: Shapes) -> list[Array]:
    x, index = inputs
    axis = _axis(attrs, x.ndim)
    if x.ndim == 0:
        return [x]
    parts = (slice(None) if i == axis else slice(size) for i, size in enumerate(index.shape))
    return [np.take_along_axis(x[tuple(parts)], index, axis)]


def concatenate(inputs: Inputs, attrs: Attrs, shapes: Shapes) -> list[Array]:
    axis = _axis(attrs, len(shapes[0]))
    join = np.stack if inputs[0].ndim < len(shapes[0]) else np.concatenate
    return [join(list(inputs), axis)]


def embedding_gradient(inputs: Inputs, attrs: Attrs, shapes: Shapes) -> list[Array]:
    gradient, index = inputs
    result = np.zeros(shapes[0], gradient.dtype)
    is_real = index != attrs["padding_index"]
    np.add.at(result, index[is_real], gradient[is_real])
    return [result]


def _coordinates(mode: int, places: Array, size: int) -> Array:
    """Return the coordinate that each place reads; -1 for what is filled."""
    if mode == 2:
        return places % size
    if mode == 3:
        return size - 1 - abs(size - 1 - abs(places))
    if mode == 4:
        return np.clip(places, 0, size - 1)
    return np.where((places >= 0) & (places < size), places, -1)


def axis_map(inputs: Inputs, attrs: Attrs, shapes: Shapes) -> list[Array]:
    x, *fill = inputs
    shape = shapes[0]
    x = x.reshape((1,) * (len(shape) - x.ndim) + x.shape)
    axes = [
        _coordinates(
            int(attrs["mode"]), np.arange(size) * int(attrs[f"step{i}"]) + int(attrs[f"start{i}"]), x.shape[i]
        )
        for i, size in enumerate(shape)
    ]
    if not shape:
        return [x]
    y = x[np.ix_(*axes)]
    for axis, coordinates in enumerate(axes):
        if fill:
            y[_places(axis, [np.flatnonzero(coordinates < 0)])] = fill[0]
    return [y]


def one_hot(inputs: Inputs, _: Attrs, shapes: Shapes) -> list[Array]:
    return [np.eye(shapes[0][-1], dtype=np.int64)[inputs[0]]]


def arange(_: Inputs, attrs: Attrs, shapes: Shapes) -> list[Array]:
    return [attrs["start"] + attrs["step"] * np.arange(shapes[0][0])]


def slice_scatter(inputs: Inputs, attrs: Attrs, _: Shapes) -> list[Array]:
    x, source = inputs
    y, axis, start = x.copy(), _axis(attrs, x.ndim), int(attrs["start"])
    if source.ndim < x.ndim:
        source = np.expand_dims(source, axis)
    step = int(attrs["step"])
    y[_places(axis, [np.arange(source.shape[axis]) * step + start])] = source
    return [y]


def triangle(inputs: Inputs, attrs: Attrs, _: Shapes) -> list[Array]:
    function = np.triu if attrs["upper"] else np.tril
    return [function(inputs[0], int(attrs["diagonal"]))]


def sort(inputs: Inputs, attrs: Attrs, shapes: Shapes) -> list[Array]:
    (x,) = inputs
    if x.ndim == 0:
        return [x, np.zeros((), np.int64)]
    axis, size = _axis(attrs, x.ndim), x.shape[_axis(attrs, x.ndim)]
    if attrs["descending"]:  # equal elements stay in their order
        order = size - 1 - np.flip(np.argsort(np.flip(x, axis), axis, kind="stable"), axis)
    else:
        order = np.argsort(x, axis, kind="stable")
    first = order[_places(axis, [np.arange(shapes[0][axis])])]
    return [np.take_along_axis(x, first, axis), first]


def top(inputs: Inputs, attrs: Attrs, shapes: Shapes) -> list[Array]:
    return sort(inputs, {"axis": attrs.get("axis", -1), "descending": attrs.get("largest", 1)}, shapes)
