"""The row of convolutions by packed weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any

import numpy as np

from npu_cuda.testing.case import Array, Attrs, Case, OpRow, Refusal, TensorLayout
from npu_cuda.testing.rows.conv import AXES, CONVS, SMALL, Conv, channels_last, convolve, layouts_of
from npu_cuda.testing.rows.fused import PRODUCT_PLUS_INPUT, fused_attrs
from npu_cuda.testing.values import FLOATS

WIDTH = 16  # of the panels
# Steps that registers take, with what they compute: the sums z are tensor 0, and `other` is the last input.
SUM_AND_RELU = (("EltwiseAdd", (1, 0), (3,)), ("EltwiseRelu", (3,), (2,)))
HARDSWISH = (("Hardswish", (0,), (1,)),)
_STEPS: tuple[tuple[Any, Callable[[Array, Array], Array]], ...] = (
    (PRODUCT_PLUS_INPUT, lambda z, other: z * other + z),
    (SUM_AND_RELU, lambda z, other: np.maximum(z + other, 0)),
    (HARDSWISH, lambda z, _: z * np.clip(z + 3, 0, 6) / 6),
)


def _panels(conv: Conv) -> TensorLayout:
    groups, rows = conv.groups, prod(conv.kernel) * conv.x[1] // conv.groups
    return TensorLayout((groups, -(-conv.outputs // groups // WIDTH), rows, WIDTH))


def _packed_attrs(conv: Conv) -> dict[str, int]:
    names = AXES[-len(conv.kernel) :]
    kernel = {f"kernel_{axis}": size for axis, size in zip(names, conv.kernel, strict=True)}
    return conv.attrs | kernel | {"has_bias": 0}


def _packed(inputs: Sequence[Array], attrs: Attrs, shapes: Sequence[tuple[int, ...]]) -> list[Array]:
    """Return the convolution by the weights that panels hold, and behind it the steps."""
    x, panels, *rest = inputs
    if len(panels) < int(attrs["groups"]):  # one panel of all groups
        panels = panels.transpose(3, 0, 2, 1)
    bias = rest[: int(attrs["has_bias"])]
    if attrs.get("winograd_tile"):
        z = _by_winograd(x, panels, attrs, shapes[0]) + bias[0][:, None, None]
        return [_after_steps(attrs, z, rest[-1])]
    groups, outputs, rank = panels.shape[0], shapes[0][1] // panels.shape[0], x.ndim - 2
    kernel = [int(attrs[f"kernel_{axis}"]) for axis in AXES[-rank:]]
    matrices = panels.transpose(0, 2, 1, 3).reshape(groups, panels.shape[2], -1)[..., :outputs]
    weights = matrices.reshape(groups, *kernel, x.shape[1] // groups, outputs)
    taps, inner, outer = range(1, rank + 1), rank + 1, rank + 2
    order = (0, inner, outer, *taps) if attrs["transposed"] else (0, outer, inner, *taps)
    weights = weights.transpose(order)
    (z,) = convolve([x, weights.reshape(-1, *weights.shape[2:]), *bias], attrs, shapes)
    return [_after_steps(attrs, z, rest[-1] if rest else z)]


def _after_steps(attrs: Attrs, z: Array, other: Array) -> Array:
    if not attrs.get("steps"):
        return z
    return next(f for steps, f in _STEPS if fused_attrs(steps)["payload"] == attrs["payload"])(z, other)


def _by_winograd(x: Array, panels: Array, attrs: Attrs, y: tuple[int, ...]) -> Array:
    """Return A^T (U * (B^T P B)) A of all patches P of x, where panels hold U of each point."""
    import torch
    import torch.nn.functional as F

    tile, (height, width) = int(attrs["winograd_tile"]), y[2:]
    of_patch, of_result = (torch.tensor(np.kron(matrix, matrix)) for matrix in _winograd_matrices(tile))
    top, left = int(attrs["padding_h"]), int(attrs["padding_w"])
    down, across = -(-height // tile) * tile, -(-width // tile) * tile
    below, right = down + 2 - x.shape[2] - top, across + 2 - x.shape[3] - left
    padded = F.pad(torch.tensor(x, dtype=torch.float64), (left, right, top, below))
    patches = F.unfold(padded, tile + 2, stride=tile).reshape(*x.shape[:2], (tile + 2) ** 2, -1)
    panels = panels[0].reshape((tile + 2) ** 2, -1, *panels.shape[2:])
    points = torch.tensor(panels, dtype=torch.float64).transpose(1, 2).flatten(2)
    squares = torch.einsum("mp,pq,ncql,pco->noml", of_result, of_patch, patches, points)
    image = F.fold(squares.flatten(1, 2), (down, across), tile, stride=tile)
    result: Array = image[:, :, :height, :width].numpy()
    return result


def _winograd_matrices(tile: int) -> tuple[Array, Array]:
    """Return B^T and A^T: polynomials by their roots, and powers of the points."""
    points = [0.0, 1.0, -1.0, 0.5, -2.0][: tile + 1]
    rows = [np.poly(points[:i] + points[i + 1 :])[::-1] for i in range(len(points))]
    of_patch = np.array([np.append(row, 0.0) for row in rows] + [np.poly(points)[::-1]])
    of_result = np.array([[point**power for point in points] + [0.0] for power in range(tile)])
    of_result[-1, -1] = 1.0
    return of_patch, of_result


def _packed_cases() -> Iterator[Case]:
    for name, conv in CONVS:
        x, _, y = layouts_of(conv, "float32", is_last=True)
        bias, attrs = TensorLayout((conv.outputs,)), _packed_attrs(conv)
        yield Case(name, (x, _panels(conv), bias), (y,), attrs | {"has_bias": 1}, terms=conv.terms)
        if not attrs["transposed"]:
            yield _stepped_case(f"{name}, with steps", conv, TensorLayout(conv.y))
            yield _stepped_case(f"{name}, sum and relu", conv, y, steps=SUM_AND_RELU)
            yield _stepped_case(f"{name}, hardswish", conv, steps=HARDSWISH)
    for dtype in FLOATS:
        x, _, y = layouts_of(SMALL, dtype, is_last=False)
        yield Case(f"{dtype}, contiguous", (x, _panels(SMALL)), (y,), _packed_attrs(SMALL), terms=SMALL.terms)
    eight = Conv((2, 3, 9, 50), 8, (3, 3), padding=1)
    yield _stepped_case("steps over whole rows of 8 channels", eight, channels_last(eight.y, "float32"))
    yield from _depthwise_cases()
    yield from _squares_cases()
    images, channels = SMALL.y[:2]
    for name, other in (
        ("channels", TensorLayout((channels, 1, 1))),
        ("channels of images", TensorLayout((images, channels, 1, 1))),
        ("a number", TensorLayout(())),
        ("float16", TensorLayout(SMALL.y, "float16")),
    ):
        for is_last in (False, True):
            where = "channels last" if is_last else "contiguous"
            yield _stepped_case(f"steps with {name}, {where}", SMALL, other, is_last=is_last)


def _depthwise_cases() -> Iterator[Case]:
    for name, conv in CONVS:
        if conv.groups == conv.x[1] == conv.outputs:
            yield _depthwise_case(f"{name}, one panel", conv)
            if not conv.transposed:
                y = channels_last(conv.y, "float32")
                yield _depthwise_case(f"{name}, one panel, with steps", conv, TensorLayout(conv.y))
                yield _depthwise_case(f"{name}, one panel, hardswish", conv, steps=HARDSWISH)
                yield _depthwise_case(f"{name}, one panel, sum and relu", conv, y, steps=SUM_AND_RELU)


def _squares_cases() -> Iterator[Case]:
    """Yield cases of Winograd's algorithm."""
    for tile in (2, 4):
        for sizes in ((7, 9), (8, 16), (2, 3)):
            conv = Conv((2, 48, *sizes), 128, (3, 3), padding=1)
            x, _, y = layouts_of(conv, "float32", is_last=True)
            panels = TensorLayout((1, (tile + 2) ** 2 * 2, 48, 64))
            attrs = _packed_attrs(conv) | {"has_bias": 1, "winograd_tile": tile}
            name = f"squares of {tile} in {list(sizes)}"
            tensors, terms = (x, panels, TensorLayout((128,))), (tile + 2) ** 2 * 48
            yield Case(name, tensors, (y,), attrs, terms=terms)
            stepped = {**attrs, **fused_attrs(SUM_AND_RELU)}
            yield Case(f"{name}, sum and relu", (*tensors, y), (y,), stepped, terms=terms)


def _depthwise_case(name: str, conv: Conv, *other: TensorLayout, steps: Any = PRODUCT_PLUS_INPUT) -> Case:
    x, _, y = layouts_of(conv, "float32", is_last=True)
    panels = TensorLayout((1, 1, prod(conv.kernel), conv.outputs))
    attrs: dict[str, Any] = {**_packed_attrs(conv), "has_bias": 1}
    if other or steps is HARDSWISH:
        attrs |= fused_attrs(steps)
    tensors = x, panels, TensorLayout((conv.outputs,)), *other
    return Case(name, tensors, (y,), attrs, terms=conv.terms)


def _stepped_case(
    name: str,
    conv: Conv,
    *other: TensorLayout,
    is_last: bool = True,
    steps: Any = PRODUCT_PLUS_INPUT,
) -> Case:
    x, _, y = layouts_of(conv, "float32", is_last=is_last)
    tensors = x, _panels(conv), TensorLayout((conv.outputs,)), *other
    attrs = {**_packed_attrs(conv), "has_bias": 1, **fused_attrs(steps)}
    return Case(name, tensors, (y,), attrs, terms=conv.terms)


def _packed_refusals() -> Iterator[Refusal]:
    x, _, y = layouts_of(SMALL, "float32", is_last=False)
    panels, attrs = _panels(SMALL), _packed_attrs(SMALL)
    for name, changed, match in (
        ("panels of float16", TensorLayout(panels.shape, "float16"), "the panels is float16, not float32"),
        ("panels with gaps", TensorLayout(panels.shape, strides=(900, 900, 17, 1)), "is not contiguous"),
        ("narrow panels", TensorLayout((1, 2, 45, 8)), "not those of 1 matrices of [45, 9]"),
        ("panels of fewer rows", TensorLayout((1, 1, 40, 16)), "not those of 1 matrices of [45, 9]"),
    ):
        yield Refusal(name, (x, changed), (y,), match, attrs)
    yield Refusal("no taps", (x, panels), (y,), "of no taps", attrs | {"kernel_h": 0})
    bias, biased = TensorLayout((9,)), attrs | {"has_bias": 1}
    steps = {**attrs, **fused_attrs(PRODUCT_PLUS_INPUT)}
    half, _, half_y = layouts_of(SMALL, "float16", is_last=False)
    rows = TensorLayout((2, 9, 7, 1))
    tiled = {"winograd_tile": 2}
    for name, inputs, output, given, match in (
        ("no bias", (x, panels), y, biased, "it has a bias, but only two inputs"),
        ("more than a bias", (x, panels, bias, bias), y, biased, "more tensors than a convolution, but no"),
        ("steps of float16", (half, panels, half_y), half_y, steps, "steps follow convolutions of float32"),
        ("another tile", (x, panels), y, attrs | {"winograd_tile": 3}, "winograd_tile is 3, not 2 or 4"),
        ("strides", (x, panels), y, attrs | tiled | {"stride_h": 2}, "the result has sizes"),
        (
            "dilated squares",
            (x, panels),
            y,
            attrs | tiled | {"dilation_h": 2, "padding_h": 2},
            "3 x 3 taps of stride 1",
        ),
        ("contiguous", (x, panels), y, attrs | tiled, "x is not of float32 with its channels side by side"),
        ("rows for pixels", (x, panels, rows), y, steps, "a tensor of a step, have no stride of their own"),
    ):
        yield Refusal(name, inputs, (output,), match, given)


PACKED_CONV = OpRow("packed_conv", "PackedConv", "CNVP", _packed, _packed_cases, _packed_refusals, sized=True)
