"""The rows of convolutions and of the gradients of their weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from npu_cuda.testing.case import Array, Attrs, Case, OpRow, Refusal, TensorLayout
from npu_cuda.testing.misuse import misuses
from npu_cuda.testing.rows.fused import PRODUCT_PLUS_INPUT, fused_attrs
from npu_cuda.testing.values import FLOATS

_AXES = "dhw"


@dataclass(frozen=True, slots=True)
class _Conv:
    """A convolution of x [batch, inputs, *sizes]; numbers of an axis are in the order of the sizes."""

    x: tuple[int, ...]
    outputs: int
    kernel: tuple[int, ...]
    stride: int | tuple[int, ...] = 1
    padding: int | tuple[int, ...] = 0
    dilation: int | tuple[int, ...] = 1
    groups: int = 1
    transposed: bool = False
    output_padding: int = 0

    def along(self, name: str) -> tuple[int, ...]:
        numbers = getattr(self, name)
        return numbers if isinstance(numbers, tuple) else (numbers,) * len(self.kernel)

    @property
    def attrs(self) -> dict[str, int]:
        names = _AXES[-len(self.kernel) :]
        numbers = {
            f"{name}_{axis}": number
            for name in ("stride", "padding", "dilation")
            for axis, number in zip(names, self.along(name), strict=True)
        }
        return {**numbers, "groups": self.groups, "transposed": int(self.transposed)}

    @property
    def weight(self) -> tuple[int, ...]:
        inputs = self.x[1]
        outer, inner = (inputs, self.outputs) if self.transposed else (self.outputs, inputs)
        return (outer, inner // self.groups, *self.kernel)

    @property
    def y(self) -> tuple[int, ...]:
        sizes = []
        for size, taps, stride, padding, dilation in zip(
            self.x[2:], self.kernel, *map(self.along, ("stride", "padding", "dilation")), strict=True
        ):
            reach = dilation * (taps - 1) + 1
            sizes.append(
                (size - 1) * stride - 2 * padding + reach + self.output_padding
                if self.transposed
                else (size + 2 * padding - reach) // stride + 1
            )
        return (self.x[0], self.outputs, *sizes)

    @property
    def terms(self) -> int:
        return prod(self.kernel) * self.x[1] // self.groups


SMALL = _Conv((2, 5, 7, 6), 9, (3, 3), padding=1)
CONVS: tuple[tuple[str, _Conv], ...] = (
    ("one axis", _Conv((2, 4, 19), 7, (5,), stride=2, padding=2, dilation=2)),
    ("three axes", _Conv((1, 3, 4, 5, 6), 5, (2, 3, 2), stride=(1, 2, 1), padding=(1, 0, 1))),
    ("a pixel", _Conv((3, 17, 5, 5), 65, (1, 1))),
    ("a pixel, stride 2", _Conv((2, 8, 7, 9), 16, (1, 1), stride=2)),
    ("many outputs", _Conv((1, 20, 6, 7), 130, (3, 3), padding=1)),
    ("many inputs", _Conv((1, 600, 4, 3), 19, (3, 1), padding=(1, 0))),
    ("stem", _Conv((1, 3, 23, 21), 12, (7, 7), stride=2, padding=3)),
    ("dilated", _Conv((1, 6, 11, 12), 10, (3, 3), stride=(2, 1), padding=(2, 3), dilation=(2, 3))),
    ("groups", _Conv((2, 12, 6, 5), 20, (3, 3), padding=1, groups=4)),
    ("groups of one input", _Conv((1, 6, 6, 5), 18, (3, 3), padding=1, groups=6)),
    ("depthwise", _Conv((2, 37, 9, 10), 37, (3, 3), padding=1, groups=37)),
    ("depthwise, wide", _Conv((1, 72, 5, 21), 72, (3, 7), padding=(1, 3), groups=72)),
    ("depthwise, dilated", _Conv((1, 9, 12, 13), 9, (3, 5), stride=(1, 2), padding=4, dilation=2, groups=9)),
    ("depthwise, few channels", _Conv((1, 3, 8, 17), 3, (3, 3), padding=1, groups=3)),
    ("depthwise, stride 2", _Conv((1, 20, 11, 12), 20, (5, 5), stride=2, padding=2, groups=20)),
    ("kernel beyond the image", _Conv((1, 4, 2, 3), 6, (3, 3), padding=2)),
    ("rows of many pixels", _Conv((1, 2, 3, 411), 3, (3, 3), padding=1)),
    ("transposed", _Conv((2, 5, 4, 6), 7, (3, 3), padding=1, transposed=True)),
    (
        "transposed, stride 2",
        _Conv((2, 6, 5, 4), 9, (3, 3), stride=2, padding=1, transposed=True, output_padding=1),
    ),
    ("transposed, gaps", _Conv((1, 3, 4, 3), 4, (2, 1), stride=3, transposed=True, output_padding=1)),
    ("transposed groups", _Conv((1, 8, 5, 5), 12, (4, 4), stride=2, padding=1, groups=2, transposed=True)),
    (
        "transposed depthwise",
        _Conv((1, 19, 5, 6), 19, (3, 3), stride=2, padding=1, groups=19, transposed=True),
    ),
    ("transposed, one axis", _Conv((1, 4, 9), 6, (4,), stride=2, dilation=3, transposed=True)),
)  # fmt: skip


def _channels_last(shape: tuple[int, ...], dtype: str) -> TensorLayout:
    channels, sizes = shape[1], shape[2:]
    steps = [channels * prod(sizes[axis + 1 :]) for axis in range(len(sizes))]
    return TensorLayout(shape, dtype, (channels * prod(sizes), 1, *steps))


def _layouts(conv: _Conv, dtype: str, *, is_last: bool) -> tuple[TensorLayout, TensorLayout, TensorLayout]:
    image = _channels_last if is_last else TensorLayout
    return image(conv.x, dtype), image(conv.weight, dtype), image(conv.y, dtype)


def _arguments(attrs: Attrs, x: Sequence[int], kernel: Sequence[int], y: Sequence[int]) -> list[Any]:
    """Return the arguments of ``aten.convolution`` behind the tensors, of which it takes the sizes."""
    names = _AXES[-len(kernel) :]
    stride, padding, dilation = (
        [int(attrs.get(f"{name}_{axis}", default)) for axis in names]
        for name, default in (("stride", 1), ("padding", 0), ("dilation", 1))
    )
    further = [0] * len(names)
    if attrs["transposed"]:
        along = zip(x, kernel, y, stride, padding, dilation, strict=True)
        further = [out - ((size - 1) * s - 2 * p + d * (taps - 1) + 1) for size, taps, out, s, p, d in along]
    return [stride, padding, dilation, bool(attrs["transposed"]), further, int(attrs["groups"])]


def _forward(inputs: Sequence[Array], attrs: Attrs, shapes: Sequence[tuple[int, ...]]) -> list[Array]:
    import torch

    x, weight, *bias = (torch.tensor(each, dtype=torch.float64) for each in inputs)
    arguments = _arguments(attrs, x.shape[2:], weight.shape[2:], shapes[0][2:])
    result = torch.ops.aten.convolution.default(x, weight, bias[0] if bias else None, *arguments)
    return [result.numpy()]


def _weight_gradient(inputs: Sequence[Array], attrs: Attrs, shapes: Sequence[tuple[int, ...]]) -> list[Array]:
    import torch

    x, dy = (torch.tensor(each, dtype=torch.float64) for each in inputs)
    weight = torch.zeros(shapes[0], dtype=torch.float64)
    arguments = _arguments(attrs, x.shape[2:], weight.shape[2:], dy.shape[2:])
    mask = [False, True, False]
    gradients = torch.ops.aten.convolution_backward.default(dy, x, weight, None, *arguments, mask)
    return [gradients[1].numpy()]


def _forward_cases() -> Iterator[Case]:
    for name, conv in CONVS:
        for is_last in (False, True):
            x, weight, y = _layouts(conv, "float32", is_last=is_last)
            where = "channels last" if is_last else "contiguous"
            yield Case(f"{name}, {where}", (x, weight), (y,), conv.attrs, terms=conv.terms)
        bias = TensorLayout((conv.outputs,))
        yield Case(f"{name}, bias", (x, weight, bias), (y,), conv.attrs, terms=conv.terms)
    for dtype in FLOATS:
        for is_last in (False, True):
            for conv in (SMALL, dict(CONVS)["depthwise"], dict(CONVS)["transposed, stride 2"]):
                layouts = _layouts(conv, dtype, is_last=is_last)
                bias = TensorLayout((conv.outputs,), dtype)
                name = f"{dtype}, {list(conv.x)}, {'channels last' if is_last else 'contiguous'}"
                yield Case(name, (*layouts[:2], bias), layouts[2:], conv.attrs, terms=conv.terms)
    x, weight, y = _layouts(SMALL, "float32", is_last=False)
    gaps = TensorLayout(x.shape, strides=(1000, 130, 18, 2))
    yield Case("gaps", (gaps, weight), (y,), SMALL.attrs, terms=SMALL.terms)
    shifted = TensorLayout(x.shape, strides=_channels_last(x.shape, "float32").strides, shift=1)
    yield Case("misaligned", (shifted, weight), (y,), SMALL.attrs, terms=SMALL.terms)
    yield Case("no images", *_empty(SMALL), SMALL.attrs)


def _empty(conv: _Conv) -> tuple[tuple[TensorLayout, ...], tuple[TensorLayout, ...]]:
    x, weight, y = (TensorLayout(shape) for shape in ((0, *conv.x[1:]), conv.weight, (0, *conv.y[1:])))
    return (x, weight), (y,)


def _gradient_cases() -> Iterator[Case]:
    for name, conv in CONVS:
        for is_last in (False, True):
            x, weight, y = _layouts(conv, "float32", is_last=is_last)
            where = "channels last" if is_last else "contiguous"
            yield Case(f"{name}, {where}", (x, y), (weight,), conv.attrs, terms=prod(conv.y) // conv.outputs)
    for dtype in FLOATS:
        x, weight, y = _layouts(SMALL, dtype, is_last=True)
        yield Case(f"{dtype}", (x, y), (weight,), SMALL.attrs, terms=84)


def _shape_refusals(order: tuple[int, int, int]) -> Iterator[Refusal]:
    """Yield refusals of an op whose tensors are x, the weights and y, in this order."""

    def refusal(
        name: str, match: str, conv: _Conv = SMALL, further: Attrs | None = None, **changed: TensorLayout
    ) -> Refusal:
        right = dict(zip(("x", "weight", "y"), _layouts(conv, "float32", is_last=False), strict=True))
        tensors = list((right | changed).values())
        first, second, last = (tensors[place] for place in order)
        return Refusal(
            name, (first, second), (last,), "NotImplemented", match, {**conv.attrs, **(further or {})}
        )

    yield refusal("stride 0", "is 0", further={"stride_h": 0})
    yield refusal("no groups", "is 0", further={"groups": 0})
    yield refusal("negative padding", "a padding is -1", further={"padding_w": -1})
    yield refusal("transposed is 2", "transposed is 2, not 0 or 1", further={"transposed": 2})
    yield refusal("two axes", "x has 2 axes, not 3 to 5", x=TensorLayout((2, 5)))
    yield refusal("integers", "is int32, not ", x=TensorLayout(SMALL.x, "int32"))
    yield refusal("weights of float16", "w is float16", weight=TensorLayout(SMALL.weight, "float16"))
    yield refusal("weights of one axis", "w has 3 axes, x has 4", weight=TensorLayout((9, 5, 3)))
    yield refusal("groups that do not fit", "are not 3 groups", further={"groups": 3})
    yield refusal("weights of other inputs", "not [9, 5, ...]", weight=TensorLayout((9, 4, 3, 3)))
    yield refusal("other images", "x has 3 images, the result 2", x=TensorLayout((3, 5, 7, 6)))
    yield refusal("no taps", "the weights are of no taps", weight=TensorLayout((9, 5, 0, 3)))
    yield refusal(
        "other sizes", "the result has sizes [7, 5], not 6 along axis 3", y=TensorLayout((2, 9, 7, 5))
    )


def _forward_refusals() -> Iterator[Refusal]:
    yield from _shape_refusals((0, 1, 2))
    layouts = _layouts(SMALL, "float32", is_last=False)
    for name, bias, match in (
        ("another bias", TensorLayout((8,)), "the bias is float32[8], not a number for each of 9"),
        ("a bias of float16", TensorLayout((9,), "float16"), "the bias is float16, not float32"),
    ):
        yield Refusal(name, (*layouts[:2], bias), layouts[2:], "NotImplemented", match, SMALL.attrs)
    yield from misuses("Conv", Case("right", layouts[:2], layouts[2:], SMALL.attrs))


def _gradient_refusals() -> Iterator[Refusal]:
    yield from _shape_refusals((0, 2, 1))
    x, weight, y = _layouts(SMALL, "float32", is_last=False)
    yield from misuses("ConvWeightGradient", Case("right", (x, y), (weight,), SMALL.attrs))


WIDTH = 16  # of the panels
# Steps that registers take, with what they compute: the sums z are tensor 0, and `other` is the last input.
SUM_AND_RELU = (("EltwiseAdd", (1, 0), (3,)), ("EltwiseRelu", (3,), (2,)))
HARDSWISH = (("Hardswish", (0,), (1,)),)
_STEPS: tuple[tuple[Any, Callable[[Array, Array], Array]], ...] = (
    (PRODUCT_PLUS_INPUT, lambda z, other: z * other + z),
    (SUM_AND_RELU, lambda z, other: np.maximum(z + other, 0)),
    (HARDSWISH, lambda z, _: z * np.clip(z + 3, 0, 6) / 6),
)


def _panels(conv: _Conv) -> TensorLayout:
    groups, rows = conv.groups, prod(conv.kernel) * conv.x[1] // conv.groups
    return TensorLayout((groups, -(-conv.outputs // groups // WIDTH), rows, WIDTH))


def _packed_attrs(conv: _Conv) -> dict[str, int]:
    names = _AXES[-len(conv.kernel) :]
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
    kernel = [int(attrs[f"kernel_{axis}"]) for axis in _AXES[-rank:]]
    matrices = panels.transpose(0, 2, 1, 3).reshape(groups, panels.shape[2], -1)[..., :outputs]
    weights = matrices.reshape(groups, *kernel, x.shape[1] // groups, outputs)
    taps, inner, outer = range(1, rank + 1), rank + 1, rank + 2
    order = (0, inner, outer, *taps) if attrs["transposed"] else (0, outer, inner, *taps)
    weights = weights.transpose(order)
    (z,) = _forward([x, weights.reshape(-1, *weights.shape[2:]), *bias], attrs, shapes)
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
        x, _, y = _layouts(conv, "float32", is_last=True)
        bias, attrs = TensorLayout((conv.outputs,)), _packed_attrs(conv)
        yield Case(name, (x, _panels(conv), bias), (y,), attrs | {"has_bias": 1}, terms=conv.terms)
        if not attrs["transposed"]:
            yield _stepped_case(f"{name}, with steps", conv, TensorLayout(conv.y))
            yield _stepped_case(f"{name}, sum and relu", conv, y, steps=SUM_AND_RELU)
            yield _stepped_case(f"{name}, hardswish", conv, steps=HARDSWISH)
    for dtype in FLOATS:
        x, _, y = _layouts(SMALL, dtype, is_last=False)
        yield Case(f"{dtype}, contiguous", (x, _panels(SMALL)), (y,), _packed_attrs(SMALL), terms=SMALL.terms)
    eight = _Conv((2, 3, 9, 50), 8, (3, 3), padding=1)
    yield _stepped_case("steps over whole rows of 8 channels", eight, _channels_last(eight.y, "float32"))
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
                y = _channels_last(conv.y, "float32")
                yield _depthwise_case(f"{name}, one panel, with steps", conv, TensorLayout(conv.y))
                yield _depthwise_case(f"{name}, one panel, hardswish", conv, steps=HARDSWISH)
                yield _depthwise_case(f"{name}, one panel, sum and relu", conv, y, steps=SUM_AND_RELU)


def _squares_cases() -> Iterator[Case]:
    """Yield cases of Winograd's algorithm."""
    for tile in (2, 4):
        for sizes in ((7, 9), (8, 16), (2, 3)):
            conv = _Conv((2, 48, *sizes), 128, (3, 3), padding=1)
            x, _, y = _layouts(conv, "float32", is_last=True)
            panels = TensorLayout((1, (tile + 2) ** 2 * 2, 48, 64))
            attrs = _packed_attrs(conv) | {"has_bias": 1, "winograd_tile": tile}
            name = f"squares of {tile} in {list(sizes)}"
            tensors, terms = (x, panels, TensorLayout((128,))), (tile + 2) ** 2 * 48
            yield Case(name, tensors, (y,), attrs, terms=terms)
            stepped = {**attrs, **fused_attrs(SUM_AND_RELU)}
            yield Case(f"{name}, sum and relu", (*tensors, y), (y,), stepped, terms=terms)


def _depthwise_case(name: str, conv: _Conv, *other: TensorLayout, steps: Any = PRODUCT_PLUS_INPUT) -> Case:
    x, _, y = _layouts(conv, "float32", is_last=True)
    panels = TensorLayout((1, 1, prod(conv.kernel), conv.outputs))
    attrs: dict[str, Any] = {**_packed_attrs(conv), "has_bias": 1}
    if other or steps is HARDSWISH:
        attrs |= fused_attrs(steps)
    tensors = x, panels, TensorLayout((conv.outputs,)), *other
    return Case(name, tensors, (y,), attrs, terms=conv.terms)


def _stepped_case(
    name: str,
    conv: _Conv,
    *other: TensorLayout,
    is_last: bool = True,
    steps: Any = PRODUCT_PLUS_INPUT,
) -> Case:
    x, _, y = _layouts(conv, "float32", is_last=is_last)
    tensors = x, _panels(conv), TensorLayout((conv.outputs,)), *other
    attrs = {**_packed_attrs(conv), "has_bias": 1, **fused_attrs(steps)}
    return Case(name, tensors, (y,), attrs, terms=conv.terms)


def _packed_refusals() -> Iterator[Refusal]:
    x, _, y = _layouts(SMALL, "float32", is_last=False)
    panels, attrs = _panels(SMALL), _packed_attrs(SMALL)
    for name, changed, match in (
        ("panels of float16", TensorLayout(panels.shape, "float16"), "the panels is float16, not float32"),
        ("panels with gaps", TensorLayout(panels.shape, strides=(900, 900, 17, 1)), "is not contiguous"),
        ("narrow panels", TensorLayout((1, 2, 45, 8)), "not those of 1 matrices of [45, 9]"),
        ("panels of fewer rows", TensorLayout((1, 1, 40, 16)), "not those of 1 matrices of [45, 9]"),
    ):
        yield Refusal(name, (x, changed), (y,), "NotImplemented", match, attrs)
    yield Refusal("no taps", (x, panels), (y,), "NotImplemented", "of no taps", attrs | {"kernel_h": 0})
    bias, biased = TensorLayout((9,)), attrs | {"has_bias": 1}
    steps = {**attrs, **fused_attrs(PRODUCT_PLUS_INPUT)}
    half, _, half_y = _layouts(SMALL, "float16", is_last=False)
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
        yield Refusal(name, inputs, (output,), "NotImplemented", match, given)


CONV_ROWS = (
    OpRow("conv", "Conv", "CONV", _forward, _forward_cases, _forward_refusals, sized=True),
    OpRow(
        "conv_weight_gradient", "ConvWeightGradient", "CNVW", _weight_gradient, _gradient_cases,
        _gradient_refusals, sized=True,
    ),
    OpRow("packed_conv", "PackedConv", "CNVP", _packed, _packed_cases, _packed_refusals, sized=True),
)  # fmt: skip
