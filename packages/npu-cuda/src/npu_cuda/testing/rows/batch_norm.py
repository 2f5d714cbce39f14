"""The rows of batch norms and their gradients, with statistics of the batch and with running ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from npu_cuda.testing.case import Array, Attrs, Case, OpRow, Refusal, TensorLayout
from npu_cuda.testing.misuse import misuses
from npu_cuda.testing.values import FLOATS

SHAPES = ((5, 6, 7, 4), (33, 9), (3, 2, 1300), (2, 40, 3))
CHANNELS_LAST = {  # shape, strides
    "channels last": ((4, 5, 3, 6), (90, 1, 30, 5)),
    "16 channels last": ((4, 16, 9, 8), (1152, 1, 128, 16)),
    "27 channels last": ((3, 27, 5, 7), (945, 1, 189, 27)),
}
RUNNING, RELU = 1, 2  # of the flags


def _axes(x: Array) -> tuple[int, ...]:
    return tuple(axis for axis in range(x.ndim) if axis != 1)


def _wide(vector: Array, x: Array) -> Array:
    return vector.reshape((-1, *(1,) * (x.ndim - 2)))


def _forward(inputs: Sequence[Array], attrs: Attrs, shapes: Sequence[tuple[int, ...]]) -> list[Array]:
    x, *rest = (np.asarray(each, np.float64) for each in inputs)
    flags = int(attrs["flags"])
    if flags & RUNNING:
        mean, variance = rest[-2:]
        rest = rest[:-2]
    else:
        mean, variance = x.mean(_axes(x)), x.var(_axes(x))
    with np.errstate(invalid="ignore"):
        rstd = 1 / np.sqrt(variance + attrs["eps"] + attrs["eps_rest"])
    gamma, beta = rest or (np.ones_like(mean), np.zeros_like(mean))
    y = (x - _wide(mean, x)) * _wide(rstd * gamma, x) + _wide(beta, x)
    if flags & RELU:
        y = np.where(y < 0, 0, y)
    return [y, mean, rstd, variance][: len(shapes)]


def _backward(inputs: Sequence[Array], attrs: Attrs) -> list[Array]:
    dy, x, mean, rstd, *gamma = (np.asarray(each, np.float64) for each in inputs)
    if int(attrs["flags"]) & RELU:
        dy = np.where(gamma.pop() <= 0, 0, dy)
    is_running = int(attrs["flags"]) & RUNNING
    if is_running:
        with np.errstate(invalid="ignore"):
            rstd = 1 / np.sqrt(rstd + attrs["eps"] + attrs["eps_rest"])
    near = (x - _wide(mean, x)) * _wide(rstd, x)
    dgamma, dbeta = (dy * near).sum(_axes(x)), dy.sum(_axes(x))
    count = x.size / x.shape[1]
    share = 0 if is_running else (_wide(dbeta, x) + near * _wide(dgamma, x)) / count
    factor = gamma[0] * rstd if gamma else rstd
    return [_wide(factor, x) * (dy - share), dgamma, dbeta]


def _layouts(dtype: str) -> Iterator[tuple[str, TensorLayout, TensorLayout]]:
    vector = TensorLayout((), "float64" if dtype == "float64" else "float32")
    for shape in SHAPES if dtype == "float32" else SHAPES[:1]:
        yield f"{dtype}, {list(shape)}", TensorLayout(shape, dtype), replace(vector, shape=shape[1:2])
    for name, (shape, strides) in CHANNELS_LAST.items():
        yield f"{dtype}, {name}", TensorLayout(shape, dtype, strides), replace(vector, shape=shape[1:2])


def _cases(images: int, statistics: int, affine: int, *, keeps: bool) -> Iterator[Case]:
    """Yield cases of an op that takes images, ``statistics``, and ``affine`` numbers for each channel."""
    for dtype in (*FLOATS, "float64"):
        for name, x, vector in _layouts(dtype):
            for flags in (0, RUNNING):
                for parameters in (0, affine):
                    vectors = parameters + (statistics if keeps or flags == RUNNING else 0)
                    yield Case(
                        f"{name}, flags {flags}, {parameters}",
                        (x,) * images + (vector,) * vectors,
                        (x, vector, vector), {"eps": 0.125, "flags": flags, "eps_rest": 0.25},
                        domain="positive", terms=100,
                    )  # fmt: skip


def _with_relu(case: Case, images: int) -> Iterator[Case]:
    """Yield a case with a relu behind the norm, whose result its gradient takes as the last input."""
    shape = case.inputs[0].shape
    if shape == SHAPES[0] or (shape not in SHAPES and case.inputs[0].dtype == "float32"):
        flags = int(case.attrs["flags"])
        yield replace(
            case, name=f"{case.name}, relu", inputs=(*case.inputs, *case.inputs[:1] * (images - 1)),
            attrs={**case.attrs, "flags": flags | RELU}, domain="positive" if flags & RUNNING else "any",
        )  # fmt: skip


def _forward_cases() -> Iterator[Case]:
    for case in _cases(1, 2, 2, keeps=False):
        yield case
        if len(case.inputs) == (5 if case.attrs["flags"] == RUNNING else 3):
            yield from _with_relu(case, 1)
        if case.attrs["flags"] != RUNNING:
            outputs = (*case.outputs, case.outputs[-1])
            yield replace(case, name=f"{case.name}, with its variance", outputs=outputs)


def _backward_cases() -> Iterator[Case]:
    for case in _cases(2, 2, 1, keeps=True):
        yield case
        if case.attrs["flags"] == RUNNING:  # the statistics are constants: it reaches no other element
            yield replace(case, name=f"{case.name}, a NaN in the gradient", domain="one NaN")
        yield from _with_relu(case, 2)
        dy, x, *vectors = case.inputs
        if x.strides is not None:
            inputs = (replace(dy, strides=None), x, *vectors)
            yield replace(case, name=f"{case.name}, a contiguous gradient", inputs=inputs)


def _refusals(op: str, right: Case) -> Iterator[Refusal]:
    x = right.outputs[0]
    images = sum(each.shape == x.shape for each in right.inputs)
    vectors = right.inputs[images:]

    def refusal(
        name: str, match: str, *, image: TensorLayout = x, further: tuple[TensorLayout, ...] = vectors
    ) -> Refusal:
        outputs = (image, *right.outputs[1:])
        return Refusal(name, (image,) * images + further, outputs, match)

    row, halves = TensorLayout((7,)), tuple(replace(each, dtype="float16") for each in vectors)
    yield refusal("no channels", "x has 1 axes, less than 2", image=row)
    yield refusal("no elements", "statistics of no elements", image=replace(x, shape=(0, 6)))
    yield refusal("integers", "x is int32, not a float", image=replace(x, dtype="int32"))
    yield refusal("parameters of float16", "a parameter is float16", further=halves)
    yield refusal(
        "other channels",
        "a number for each of 6",
        further=tuple(replace(each, shape=(5,)) for each in vectors),
    )
    outputs = (replace(x, dtype="float16"), *right.outputs[1:])
    yield Refusal("another dtype", right.inputs, outputs, "is float16, not float32")
    yield from misuses(op, right)


def _forward_refusals() -> Iterator[Refusal]:
    x, vector = TensorLayout((4, 6)), TensorLayout((6,))
    right = Case("right", (x, vector, vector), (x, vector, vector))
    yield Refusal("a parameter is missing", (x, vector), right.outputs, "it takes 1 or 3 inputs, not 2")
    yield Refusal(
        "statistics are missing",
        right.inputs[:1],
        right.outputs,
        "it takes 3 or 5 inputs, not 1",
        {"flags": RUNNING},
    )
    yield Refusal(
        "a relu without gamma and beta",
        (x,),
        right.outputs,
        "a relu follows a norm with gamma and beta",
        {"flags": RELU},
    )
    given = (x, *(vector,) * 4)
    yield Refusal(
        "a variance that is given is a result",
        given,
        (*right.outputs, vector),
        "var is given, and not a result",
        {"flags": RUNNING},
    )
    yield from _refusals("BatchNormFwd", right)


def _backward_refusals() -> Iterator[Refusal]:
    x, vector = TensorLayout((4, 6)), TensorLayout((6,))
    right = Case("right", (x, x, vector, vector), (x, vector, vector))
    yield Refusal(
        "what a relu returned is missing",
        right.inputs,
        right.outputs,
        "it takes 5 or 6 inputs, not 4",
        {"flags": RELU},
    )
    yield Refusal(
        "the relu is not one of x",
        (*right.inputs, vector),
        right.outputs,
        "y is [6], x is [4, 6]",
        {"flags": RELU},
    )
    yield from _refusals("BatchNormBwd", right)


BATCH_NORMS = (
    OpRow("batch_norm_fwd", "BatchNormFwd", "BNEP", _forward, _forward_cases, _forward_refusals, sized=True),
    OpRow("batch_norm_bwd", "BatchNormBwd", "BNEB", _backward, _backward_cases, _backward_refusals),
)
