"""The rows of softmax, norms and their gradients: references in float64 over the last axes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from npu_cuda.testing.case import Array, Attrs, Case, OpRow, Refusal, TensorLayout
from npu_cuda.testing.misuse import misuses
from npu_cuda.testing.values import FLOATS

DTYPES = (*FLOATS, "float64")
SHAPES = ((5, 17), (3, 1), (2, 2, 33), (1, 300), (9,), (0, 5), (1, 4200))
# Rows of aligned accesses and of others, as wide as each kernel of CUDA takes, and in several chunks of sums.
WIDE_SHAPES = ((130, 16), (2, 1000), (1, 1023), (1, 4096), (1, 4093))
Layouts = tuple[tuple[TensorLayout, ...], tuple[TensorLayout, ...]]
# Makes the layouts of a call from that of x, and the number of parameters: gamma, and beta.
Maker = Callable[[TensorLayout, int], Layouts]


def _softmax(inputs: Sequence[Array], attrs: Attrs) -> list[Array]:
    exponentials = np.exp(inputs[0] - inputs[0].max(_axis(attrs), keepdims=True, initial=-np.inf))
    return [exponentials / exponentials.sum(_axis(attrs), keepdims=True)]


def _log_softmax(inputs: Sequence[Array], attrs: Attrs) -> list[Array]:
    shifted = inputs[0] - inputs[0].max(_axis(attrs), keepdims=True, initial=-np.inf)
    return [shifted - np.log(np.exp(shifted).sum(_axis(attrs), keepdims=True))]


def _softmax_bwd(inputs: Sequence[Array], attrs: Attrs) -> list[Array]:
    dy, y = inputs
    return [(dy - (dy * y).sum(_axis(attrs), keepdims=True)) * y]


def _log_softmax_bwd(inputs: Sequence[Array], attrs: Attrs) -> list[Array]:
    dy, y = inputs
    return [dy - np.exp(y) * dy.sum(_axis(attrs), keepdims=True)]


def _axis(attrs: Attrs) -> int:
    return int(attrs["axis"])


def _normalized(inputs: Sequence[Array]) -> tuple[int, ...]:
    """Return the axes that are normalized: those of gamma, or the last one."""
    count = inputs[1].ndim if len(inputs) > 1 else 1
    return tuple(range(-count, 0))


def _scaled(normal: Array, parameters: Sequence[Array]) -> Array:
    scaled = normal * parameters[0] if parameters else normal
    return scaled + parameters[1] if len(parameters) > 1 else scaled


def _layer_norm(inputs: Sequence[Array], attrs: Attrs) -> list[Array]:
    x, *parameters = inputs
    axes = _normalized(inputs)
    mean = x.mean(axes, keepdims=True)
    eps = float(np.float32(attrs["eps"])) + attrs["eps_rest"]
    rstd = 1 / np.sqrt(((x - mean) ** 2).mean(axes, keepdims=True) + eps)
    return [_scaled((x - mean) * rstd, parameters), mean, rstd]


def _rms_norm(inputs: Sequence[Array], attrs: Attrs) -> list[Array]:
    x, *parameters = inputs
    rstd = 1 / np.sqrt((x**2).mean(_normalized(inputs), keepdims=True) + attrs["eps"])
    return [_scaled(x * rstd, parameters), rstd]


def _norm_gradients(x: Array, dy: Array, gamma: Any, mean: Any, rstd: Array) -> list[Array]:
    normal, slope = (x - mean) * rstd, dy * gamma
    centered = slope - (normal * slope).mean(-1, keepdims=True) * normal
    if np.ndim(mean):
        centered = centered - slope.mean(-1, keepdims=True)
    outer = tuple(range(x.ndim - 1))
    return [centered * rstd, (dy * normal).sum(outer), dy.sum(outer)]


def _layer_norm_bwd(inputs: Sequence[Array], _: Attrs) -> list[Array]:
    x, dy, *gamma, mean, rstd = inputs
    return _norm_gradients(x, dy, gamma[0] if gamma else 1.0, mean, rstd)


def _rms_norm_bwd(inputs: Sequence[Array], _: Attrs) -> list[Array]:
    x, dy, *gamma, rstd = inputs
    return _norm_gradients(x, dy, gamma[0] if gamma else 1.0, 0.0, rstd)[:2]


def _grouped(x: Array, groups: int) -> Array:
    return x.reshape(x.shape[0], groups, prod(x.shape[1:]) // groups)


def _by_channel(parameter: Array, x: Array) -> Array:
    return parameter.reshape(-1, *[1] * (x.ndim - 2))


def _group_norm(inputs: Sequence[Array], attrs: Attrs) -> list[Array]:
    x, *parameters = inputs
    rows = _grouped(x, int(attrs["groups"]))
    mean = rows.mean(-1, keepdims=True)
    rstd = 1 / np.sqrt(((rows - mean) ** 2).mean(-1, keepdims=True) + attrs["eps"])
    normal = ((rows - mean) * rstd).reshape(x.shape)
    scaled = _scaled(normal, [_by_channel(each, x) for each in parameters])
    return [scaled, mean[..., 0], rstd[..., 0]]


def _group_norm_bwd(inputs: Sequence[Array], attrs: Attrs) -> list[Array]:
    x, dy, *gamma, mean, rstd = inputs
    groups = int(attrs["groups"])
    slope = dy * _by_channel(gamma[0], x) if gamma else dy
    dx = _norm_gradients(_grouped(x, groups), _grouped(slope, groups), 1.0, mean[..., None], rstd[..., None])[
        0
    ]
    normal = ((_grouped(x, groups) - mean[..., None]) * rstd[..., None]).reshape(x.shape)
    beside = (0, *range(2, x.ndim))
    return [dx.reshape(x.shape), (dy * normal).sum(beside), dy.sum(beside)]


# ---- layouts ----


def _of_one(x: TensorLayout, _: int) -> Layouts:
    return (x,), (x,)


def _of_two(x: TensorLayout, _: int) -> Layouts:
    return (x, x), (x,)


def _plain(x: TensorLayout, shape: Sequence[int]) -> TensorLayout:
    return TensorLayout(tuple(shape), x.dtype)


def _numbers(x: TensorLayout) -> TensorLayout:
    return _plain(x, (*x.shape[:-1], 1))


def _norm(statistics: int) -> Maker:
    def make(x: TensorLayout, parameters: int) -> Layouts:
        of_rows = (_numbers(x),) * statistics
        return (x, *[_plain(x, x.shape[-1:])] * parameters), (x, *of_rows)

    return make


def _norm_bwd(statistics: int) -> Maker:
    def make(x: TensorLayout, parameters: int) -> Layouts:
        gamma = _plain(x, x.shape[-1:])
        inputs = (x, x, *[gamma] * parameters, *[_numbers(x)] * statistics)
        return inputs, (x, *[gamma] * statistics)

    return make


GROUPS = 2


def _groups(x: TensorLayout, parameters: int) -> Layouts:
    channels, numbers = _plain(x, x.shape[1:2]), _plain(x, (x.shape[0], GROUPS))
    return (x, *[channels] * parameters), (x, numbers, numbers)


def _groups_bwd(x: TensorLayout, parameters: int) -> Layouts:
    channels, numbers = _plain(x, x.shape[1:2]), _plain(x, (x.shape[0], GROUPS))
    return (x, x, *[channels] * parameters, numbers, numbers), (x, channels, channels)


# ---- rows ----


def _transposed(layout: TensorLayout) -> TensorLayout:
    strides = [prod(layout.shape[:axis]) for axis in range(len(layout.shape))]
    return replace(layout, strides=tuple(strides))


def _cases(
    make: Maker, most: int, shapes: Sequence[tuple[int, ...]], attrs: Sequence[Attrs]
) -> Iterator[Case]:
    first = TensorLayout(shapes[0])
    for count in range(most + 1):
        for shape in shapes if count == most else shapes[:1]:
            yield _case(f"{list(shape)}, {count} parameters", *make(TensorLayout(shape), count), attrs[0])
        for dtype in DTYPES:
            x = replace(first, dtype=dtype)
            yield _case(f"{dtype}, {count} parameters", *make(x, count), attrs[0])
            yield _case(f"{dtype}, {count} parameters, transposed", *make(_transposed(x), count), attrs[0])
    if shapes is SHAPES:
        yield from _wide_cases(make, most, attrs[0])
    for values in attrs:
        for shape in shapes[1:3]:
            x = TensorLayout(shape, shift=1)
            yield _case(f"{list(shape)}, misaligned, {dict(values)}", *make(x, most), values)
            yield _case(f"{list(shape)}, strided, {dict(values)}", *make(_transposed(x), most), values)


def _wide_cases(make: Maker, most: int, attrs: Attrs) -> Iterator[Case]:
    """Yield cases of wide rows; of 16-bit floats with mean and rstd in float32, as models have them."""
    for shape in WIDE_SHAPES:
        yield _case(f"{list(shape)}", *make(TensorLayout(shape), most), attrs)
        for dtype in FLOATS[1:]:
            inputs, outputs = make(TensorLayout(shape, dtype), most)
            numbers = (*shape[:-1], 1)
            inputs, outputs = (
                tuple(replace(each, dtype="float32") if each.shape == numbers else each for each in layouts)
                for layouts in (inputs, outputs)
            )
            yield _case(f"{dtype}, {list(shape)}", inputs, outputs, attrs)
        yield _case(f"{list(shape)}, misaligned", *make(TensorLayout(shape, shift=1), most), attrs)


def _case(
    name: str, inputs: tuple[TensorLayout, ...], outputs: tuple[TensorLayout, ...], attrs: Attrs
) -> Case:
    return Case(name, inputs, outputs, attrs, terms=max(1, prod(inputs[0].shape)))


def _refusals(op: str, make: Maker, least: int, attrs: Attrs, x: TensorLayout) -> Iterator[Refusal]:
    inputs, outputs = make(x, least)
    other = replace(x, shape=(*x.shape[:-1], x.shape[-1] + 1))
    yield Refusal("another shape", inputs, (other, *outputs[1:]), "the result is [", attrs)
    for name, dtype, match in (
        ("integers", "int32", "a tensor is int32, not a real float"),
        ("complex numbers", "complex64", "a tensor is complex64, not a real float"),
    ):
        changed = (replace(x, dtype=dtype), *inputs[1:])
        yield Refusal(name, changed, outputs, match, attrs)
    yield from misuses(op, Case("right", inputs, outputs, attrs))


def _wrong_axis(x: TensorLayout, make: Maker) -> Iterator[Refusal]:
    for axis in (2, -3):
        yield Refusal(f"axis {axis}", *make(x, 0), f"axis is {axis} of 2", {"axis": axis})


def _wrong_norms(x: TensorLayout, make: Maker, numbers: int) -> Iterator[Refusal]:
    """Yield refusals of norms; ``numbers`` is the place of mean or rstd, among inputs and outputs."""
    inputs, outputs = make(x, 1)
    places = [*inputs, *outputs]

    def refusal(name: str, place: int, layout: TensorLayout, match: str) -> Refusal:
        changed = [*places[:place], layout, *places[place + 1 :]]
        return Refusal(name, tuple(changed[: len(inputs)]), tuple(changed[len(inputs) :]), match)

    gamma = next(i for i, layout in enumerate(inputs) if layout.shape == x.shape[-1:])
    yield refusal("gamma of another shape", gamma, _plain(x, (7,)), "not the shape that is normalized")
    yield refusal("numbers of other rows", numbers, _plain(x, (7,)), "no last axes that leave 7 rows")
    strided = replace(places[numbers], strides=(2, 1))
    yield refusal("numbers with gaps", numbers, strided, "mean or rstd is not contiguous")
    empty = make(replace(x, shape=(4, 0)), 1)
    yield Refusal("rows of no elements", *empty, "rows of no elements have no mean")


def _wrong_groups(x: TensorLayout, make: Maker) -> Iterator[Refusal]:
    for groups in (0, 3):
        match = f"4 channels are not {groups} groups"
        yield Refusal(f"{groups} groups", *make(x, 1), match, {"groups": groups})
    few = make(replace(x, shape=(2, 4)), 1)
    one = tuple(replace(x, shape=(8,)) if layout.shape == (2, 4) else layout for layout in few[0])
    result = (replace(x, shape=(8,)), *few[1][1:])
    yield Refusal("rank 1", one, result, "x has rank 1, less than 2", {"groups": GROUPS})
    gamma = make(x, 1)[0]
    wrong = tuple(replace(layout, shape=(7,)) if layout.shape == (4,) else layout for layout in gamma)
    yield Refusal(
        "gamma of another shape", wrong, make(x, 1)[1], "not the shape that is normalized",
        {"groups": GROUPS}
    )  # fmt: skip


def _softmax_row(name: str, op: str, schema: str, reference: Any, make: Maker) -> OpRow:
    x = TensorLayout((4, 6))

    def cases() -> Iterator[Case]:
        yield from _cases(make, 0, SHAPES, ({"axis": -1}, {"axis": 0}))

    def refusals() -> Iterator[Refusal]:
        yield from _refusals(op, make, 0, {}, x)
        yield from _wrong_axis(x, make)

    return OpRow(name, op, schema, reference, cases, refusals)


def _norm_row(
    name: str, op: str, schema: str | None, reference: Any, make: Maker, most: int, numbers: int
) -> OpRow:
    x = TensorLayout((4, 6))
    attrs = ({}, {"eps": 0.5}) if schema else ({},)

    def cases() -> Iterator[Case]:
        yield from _cases(make, most, SHAPES, attrs)

    def refusals() -> Iterator[Refusal]:
        yield from _refusals(op, make, 0, {}, x)
        yield from _wrong_norms(x, make, numbers)

    return OpRow(name, op, schema, reference, cases, refusals)


def _group_row(name: str, op: str, schema: str, reference: Any, make: Maker, most: int) -> OpRow:
    shapes = ((3, 6), (2, 4, 5, 3), (1, 2, 130), (0, 4, 3))
    attrs = {"groups": GROUPS}

    def cases() -> Iterator[Case]:
        yield from _cases(make, most, shapes, (attrs,))

    def refusals() -> Iterator[Refusal]:
        x = TensorLayout((2, 4, 5))
        yield from _refusals(op, make, 0, attrs, x)
        yield from _wrong_groups(x, make)

    return OpRow(name, op, schema, reference, cases, refusals)


ROW_OPS = (
    _softmax_row("softmax", "Softmax", "SMAX", _softmax, _of_one),
    _softmax_row("softmax_bwd", "SoftmaxBwd", "SMXB", _softmax_bwd, _of_two),
    _softmax_row("log_softmax", "LogSoftmax", "LSMX", _log_softmax, _of_one),
    _softmax_row("log_softmax_bwd", "LogSoftmaxBwd", "LSMB", _log_softmax_bwd, _of_two),
    _norm_row("layer_norm", "LayerNormFwd", "LNEP", _layer_norm, _norm(2), 2, 3),
    _norm_row("layer_norm_bwd", "LayerNormBwd", None, _layer_norm_bwd, _norm_bwd(2), 1, 3),
    _norm_row("rms_norm", "RmsNormFwd", "RMSN", _rms_norm, _norm(1), 1, 3),
    _norm_row("rms_norm_bwd", "RmsNormBwd", None, _rms_norm_bwd, _norm_bwd(1), 1, 3),
    _group_row("group_norm", "GroupNormFwd", "GNRM", _group_norm, _groups, 2),
    _group_row("group_norm_bwd", "GroupNormBwd", "GNRB", _group_norm_bwd, _groups_bwd, 1),
)
