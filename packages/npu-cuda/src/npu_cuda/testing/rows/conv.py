"""The rows of convolutions and of the gradients of their weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from npu_cuda.testing.case import Array, Attrs, Case, OpRow, Refusal, TensorLayout
from npu_cuda.testing.misuse import misuses
from npu_cuda.testing.values import FLOATS

AXES = "dhw"


@dataclass(frozen=True, slots=True)
class Conv:
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
        names = AXES[-len(self.kernel) :]
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


SMALL = Conv((2, 5, 7, 6), 9, (3, 3), padding=1)
CONVS: tuple[tuple[str, Conv], ...] = (
    ("one axis", Conv((2, 4, 19), 7, (5,), stride=2, padding=2, dilation=2)),
    ("three axes", Conv((1, 3, 4, 5, 6), 5, (2, 3, 2), stride=(1, 2, 1), padding=(1, 0, 1))),
    ("a pixel", Conv((3, 17, 5, 5), 65, (1, 1))),
    ("a pixel, stride 2", Conv((2, 8, 7, 9), 16, (1, 1), stride=2)),
    ("many outputs", Conv((1, 20, 6, 7), 130, (3, 3), padding=1)),
    ("many inputs", Conv((1, 600, 4, 3), 19, (3, 1), padding=(1, 0))),
    ("stem", Conv((1, 3, 23, 21), 12, (7, 7), stride=2, padding=3)),
    ("dilated", Conv((1, 6, 11, 12), 10, (3, 3), stride=(2, 1), padding=(2, 3), dilation=(2, 3))),
    ("groups", Conv((2, 12, 6, 5), 20, (3, 3), padding=1, groups=4)),
    ("groups of one input", Conv((1, 6, 6, 5), 18, (3, 3), padding=1, groups=6)),
    ("depthwise", Conv((2, 37, 9, 10), 37, (3, 3), padding=1, groups=37)),
    ("depthwise, wide", Conv((1, 72, 5, 21), 72, (3, 7), padding=(1, 3), groups=72)),
    ("depthwise, dilated", Conv((1, 9, 12, 13), 9, (3, 5), stride=(1, 2), padding=4, dilation=2, groups=9)),
    ("depthwise, few channels", Conv((1, 3, 8, 17), 3, (3, 3), padding=1, groups=3)),
    ("depthwise, stride 2", Conv((1, 20, 11, 12), 20, (5, 5), stride=2, padding=2, groups=20)),
    ("kernel beyond the image", Conv((1, 4, 2, 3), 6, (3, 3), padding=2)),
    ("rows of many pixels", Conv((1, 2, 3, 411), 3, (3, 3), padding=1)),
    ("transposed", Conv((2, 5, 4, 6), 7, (3, 3), padding=1, transposed=True)),
    (
        "transposed, stride 2",
        Conv((2, 6, 5, 4), 9, (3, 3), stride=2, padding=1, transposed=True, output_padding=1),
    ),
    ("transposed, gaps", Conv((1, 3, 4, 3), 4, (2, 1), stride=3, transposed=True, output_padding=1)),
    ("transposed groups", Conv((1, 8, 5, 5), 12, (4, 4), stride=2, padding=1, groups=2, transposed=True)),
    (
        "transposed depthwise",
        Conv((1, 19, 5, 6), 19, (3, 3), stride=2, padding=1, groups=19, transposed=True),
    ),
    ("transposed, one axis", Conv((1, 4, 9), 6, (4,), stride=2, dilation=3, transposed=True)),
)  # fmt: skip
# The last images of a batch are fewer than those that are taken together.
SMALL_IMAGES: tuple[tuple[str, Conv], ...] = (
    ("7 images", Conv((7, 5, 9, 8), 64, (3, 3), padding=1)),
    ("19 images, stride 2", Conv((19, 6, 9, 8), 20, (3, 3), stride=2, padding=1)),
    ("300 images of a pixel", Conv((300, 4, 1, 1), 9, (2, 2), transposed=True)),
    ("5 images, groups", Conv((5, 8, 10, 11), 32, (3, 2), groups=2)),
    ("6 images, depthwise", Conv((6, 70, 8, 9), 70, (3, 3), padding=1, groups=70)),
    ("9 images, one axis", Conv((9, 4, 60), 7, (5,), padding=2)),
)


def channels_last(shape: tuple[int, ...], dtype: str) -> TensorLayout:
    channels, sizes = shape[1], shape[2:]
    steps = [channels * prod(sizes[axis + 1 :]) for axis in range(len(sizes))]
    return TensorLayout(shape, dtype, (channels * prod(sizes), 1, *steps))


def layouts_of(conv: Conv, dtype: str, *, is_last: bool) -> tuple[TensorLayout, TensorLayout, TensorLayout]:
    image = channels_last if is_last else TensorLayout
    return image(conv.x, dtype), image(conv.weight, dtype), image(conv.y, dtype)


def _arguments(attrs: Attrs, x: Sequence[int], kernel: Sequence[int], y: Sequence[int]) -> list[Any]:
    """Return the arguments of ``aten.convolution`` behind the tensors, of which it takes the sizes."""
    names = AXES[-len(kernel) :]
    stride, padding, dilation = (
        [int(attrs.get(f"{name}_{axis}", default)) for axis in names]
        for name, default in (("stride", 1), ("padding", 0), ("dilation", 1))
    )
    further = [0] * len(names)
    if attrs["transposed"]:
        along = zip(x, kernel, y, stride, padding, dilation, strict=True)
        further = [out - ((size - 1) * s - 2 * p + d * (taps - 1) + 1) for size, taps, out, s, p, d in along]
    return [stride, padding, dilation, bool(attrs["transposed"]), further, int(attrs["groups"])]


def convolve(inputs: Sequence[Array], attrs: Attrs, shapes: Sequence[tuple[int, ...]]) -> list[Array]:
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
            x, weight, y = layouts_of(conv, "float32", is_last=is_last)
            where = "channels last" if is_last else "contiguous"
            yield Case(f"{name}, {where}", (x, weight), (y,), conv.attrs, terms=conv.terms)
        bias = TensorLayout((conv.outputs,))
        yield Case(f"{name}, bias", (x, weight, bias), (y,), conv.attrs, terms=conv.terms)
    for dtype in FLOATS:
        for is_last in (False, True):
            for conv in (SMALL, dict(CONVS)["depthwise"], dict(CONVS)["transposed, stride 2"]):
                layouts = layouts_of(conv, dtype, is_last=is_last)
                bias = TensorLayout((conv.outputs,), dtype)
                name = f"{dtype}, {list(conv.x)}, {'channels last' if is_last else 'contiguous'}"
                yield Case(name, (*layouts[:2], bias), layouts[2:], conv.attrs, terms=conv.terms)
    x, weight, y = layouts_of(SMALL, "float32", is_last=False)
    gaps = TensorLayout(x.shape, strides=(1000, 130, 18, 2))
    yield Case("gaps", (gaps, weight), (y,), SMALL.attrs, terms=SMALL.terms)
    shifted = TensorLayout(x.shape, strides=channels_last(x.shape, "float32").strides, shift=1)
    yield Case("misaligned", (shifted, weight), (y,), SMALL.attrs, terms=SMALL.terms)
    yield Case("no images", *_empty(SMALL), SMALL.attrs)


def _empty(conv: Conv) -> tuple[tuple[TensorLayout, ...], tuple[TensorLayout, ...]]:
    x, weight, y = (TensorLayout(shape) for shape in ((0, *conv.x[1:]), conv.weight, (0, *conv.y[1:])))
    return (x, weight), (y,)


def _gradient_cases() -> Iterator[Case]:
    for name, conv in (*CONVS, *SMALL_IMAGES):
        for is_last in (False, True):
            x, weight, y = layouts_of(conv, "float32", is_last=is_last)
            where = "channels last" if is_last else "contiguous"
            yield Case(f"{name}, {where}", (x, y), (weight,), conv.attrs, terms=prod(conv.y) // conv.outputs)
    for dtype in FLOATS:
        x, weight, y = layouts_of(SMALL, dtype, is_last=True)
        yield Case(f"{dtype}", (x, y), (weight,), SMALL.attrs, terms=84)


def _shape_refusals(order: tuple[int, int, int]) -> Iterator[Refusal]:
    """Yield refusals of an op whose tensors are x, the weights and y, in this order."""

    def refusal(
        name: str, match: str, conv: Conv = SMALL, further: Attrs | None = None, **changed: TensorLayout
    ) -> Refusal:
        right = dict(zip(("x", "weight", "y"), layouts_of(conv, "float32", is_last=False), strict=True))
        tensors = list((right | changed).values())
        first, second, last = (tensors[place] for place in order)
        return Refusal(name, (first, second), (last,), match, {**conv.attrs, **(further or {})})

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
    layouts = layouts_of(SMALL, "float32", is_last=False)
    for name, bias, match in (
        ("another bias", TensorLayout((8,)), "the bias is float32[8], not a number for each of 9"),
        ("a bias of float16", TensorLayout((9,), "float16"), "the bias is float16, not float32"),
    ):
        yield Refusal(name, (*layouts[:2], bias), layouts[2:], match, SMALL.attrs)
    yield from misuses("Conv", Case("right", layouts[:2], layouts[2:], SMALL.attrs))


def _gradient_refusals() -> Iterator[Refusal]:
    yield from _shape_refusals((0, 2, 1))
    x, weight, y = layouts_of(SMALL, "float32", is_last=False)
    yield from misuses("ConvWeightGradient", Case("right", (x, y), (weight,), SMALL.attrs))


CONV_ROWS = (
    OpRow("conv", "Conv", "CONV", convolve, _forward_cases, _forward_refusals, sized=True),
    OpRow(
        "conv_weight_gradient", "ConvWeightGradient", "CNVW", _weight_gradient, _gradient_cases,
        _gradient_refusals, sized=True,
    ),
)  # fmt: skip
