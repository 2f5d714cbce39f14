"""The rows of the negative log likelihood and its gradient."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from npu_cuda.testing.case import Array, Attrs, Case, OpRow, Refusal, TensorLayout
from npu_cuda.testing.misuse import misuses
from npu_cuda.testing.values import FLOATS

CLASSES = 7  # targets are 1 to 5, of the positive domain
IGNORED = 3


def _weights(target: Array, weight: Sequence[Array], ignored: float) -> Array:
    """Return the weight of each row; 0 where its class is ignored."""
    of_class = weight[0][target] if weight else np.ones(target.shape)
    return np.where(target == ignored, 0.0, of_class)


def _forward(inputs: Sequence[Array], attrs: Attrs) -> list[Array]:
    x, target, *weight = inputs
    rows, classes = np.atleast_2d(x), np.atleast_1d(target)
    weights = _weights(classes, weight, attrs["ignore_index"])
    losses = -rows[np.arange(len(classes)), classes] * weights
    if attrs["reduction"] == 0 and x.ndim == 2:
        return [losses, np.zeros(())]
    with np.errstate(invalid="ignore"):
        mean = losses.sum() / weights.sum() if attrs["reduction"] == 1 else losses.sum()
    return [mean.reshape(()), weights.sum().reshape(())]


def _backward(inputs: Sequence[Array], attrs: Attrs, shapes: Sequence[tuple[int, ...]]) -> list[Array]:
    dy, target, *weight, total = inputs
    classes = np.atleast_1d(target)
    slope = -dy * _weights(classes, weight, attrs["ignore_index"])
    dx = np.zeros(shapes[0])
    dx[np.arange(len(classes)), classes] = slope / total if attrs["reduction"] == 1 else slope
    return [dx]


def _layouts(rows: int, dtype: str, count: int, reduction: int, classes: int) -> tuple[TensorLayout, ...]:
    """Return those of x, the target, weights where ``count`` is 1, y and its total."""
    x, target = TensorLayout((rows, classes), dtype), TensorLayout((rows,), "int64")
    y = TensorLayout((rows,) if reduction == 0 else (), dtype)
    return (x, target, *[TensorLayout((classes,), dtype)] * count, y, TensorLayout((), dtype))


def _case(
    rows: int, dtype: str, count: int, reduction: int, *, gradient: bool = False, classes: int = CLASSES
) -> Case:
    x, target, *weight, y, total = _layouts(rows, dtype, count, reduction, classes)
    inputs, outputs = ((y, target, *weight, total), (x,)) if gradient else ((x, target, *weight), (y, total))
    attrs = {"reduction": reduction, "ignore_index": IGNORED}
    name = f"{dtype}, {rows} rows, {classes} classes, {count} weights, reduction {reduction}"
    return Case(name, inputs, outputs, attrs, terms=max(1, rows), domain="positive")


def _cases(*, gradient: bool) -> Iterator[Case]:
    for reduction in (0, 1, 2):
        for count in (0, 1):
            for rows in (1, 6, 300, 1100):
                yield _case(rows, "float32", count, reduction, gradient=gradient)
            for dtype in (*FLOATS[1:], "float64"):
                yield _case(6, dtype, count, reduction, gradient=gradient)
        yield _case(0, "float32", 0, reduction, gradient=gradient)
    for dtype in FLOATS:  # rows of aligned accesses
        yield _case(9, dtype, 1, 1, gradient=gradient, classes=4104)
    plain = _case(6, "float32", 1, 2, gradient=gradient)
    if gradient:
        yield replace(plain, name="transposed", outputs=(replace(plain.outputs[0], strides=(1, 6)),))
    else:
        yield replace(
            plain, name="transposed", inputs=(replace(plain.inputs[0], strides=(1, 6)), *plain.inputs[1:])
        )
        one = (TensorLayout((CLASSES,)), TensorLayout((), "int64"))
        yield replace(plain, name="one row", inputs=one, attrs={"reduction": 1})


def _refusals(op: str, case: Case, matrix: int) -> Iterator[Refusal]:
    places = [*case.inputs, *case.outputs]
    count = len(case.inputs)
    for name, place, layout, match in (
        ("rank 3", matrix, TensorLayout((6, 2, 3)), "x has rank 3, not 1 or 2"),
        ("integers", matrix, TensorLayout((6, CLASSES), "int64"), "a tensor is int64, not a real float"),
        ("targets of int32", 1, TensorLayout((6,), "int32"), "target is int32, not int64"),
        ("targets of other rows", 1, TensorLayout((5,), "int64"), "target is int64[5], not of 6 elements"),
        ("targets with gaps", 1, TensorLayout((6,), "int64", (2,)), "target is not contiguous"),
    ):
        changed = [*places[:place], layout, *places[place + 1 :]]
        yield Refusal(name, tuple(changed[:count]), tuple(changed[count:]), match, case.attrs)
    yield Refusal("reduction 3", case.inputs, case.outputs, "reduction is 3, not 0, 1 or 2", {"reduction": 3})
    yield from misuses(op, case)


def _forward_refusals() -> Iterator[Refusal]:
    yield from _refusals("NllLossFwd", _case(6, "float32", 0, 2), 0)


def _backward_refusals() -> Iterator[Refusal]:
    yield from _refusals("NllLossBwd", _case(6, "float32", 0, 2, gradient=True), 3)


LOSSES = (
    OpRow("nll_loss", "NllLossFwd", "NLLF", _forward, lambda: _cases(gradient=False), _forward_refusals),
    OpRow(
        "nll_loss_bwd", "NllLossBwd", "NLLB", _backward, lambda: _cases(gradient=True), _backward_refusals,
        sized=True,
    ),
)  # fmt: skip
