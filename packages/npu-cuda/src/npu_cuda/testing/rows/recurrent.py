"""The row of recurrent layers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from npu_cuda.testing.case import Array, Attrs, Case, OpRow, Refusal, TensorLayout
from npu_cuda.testing.misuse import misuses
from npu_cuda.testing.values import FLOATS

Shape = tuple[int, ...]
CELLS = ("tanh", "relu", "lstm", "gru")
_GATES = (1, 1, 4, 3)
_UNITS = {1: 64, 3: 16, 4: 16}


def reference(inputs: Sequence[Array], attrs: Attrs, shapes: Sequence[Shape]) -> list[Array]:
    x, panels, *rest = inputs
    cell, hidden = CELLS[attrs.get("cell", 0)], shapes[0][2]
    gates = _GATES[CELLS.index(cell)]
    bias = _columns(rest.pop(), gates, hidden)[0] if attrs.get("has_bias") else 0.0
    weight = _columns(panels, gates, hidden)
    h, c = rest[0], rest[-1]
    results = np.zeros(shapes[0])
    order = range(len(x))
    for time in reversed(order) if attrs.get("reverse") else order:
        h, c = _step(cell, x[time], h @ weight + bias, h, c)
        results[time] = h
    return [results, h, c] if cell == "lstm" else [results, h]


def _columns(panels: Array, gates: int, hidden: int) -> Array:
    """Return the transposed weight that panels were made of."""
    count, depth, width = panels.shape
    parts = panels.reshape(count, depth, gates, width // gates).transpose(1, 2, 0, 3)
    return parts.reshape(depth, gates, -1)[:, :, :hidden].reshape(depth, gates * hidden)


def _step(cell: str, x: Array, of_state: Array, h: Array, c: Array) -> tuple[Array, Array]:
    if cell == "tanh":
        return np.tanh(x + of_state), c
    if cell == "relu":
        return np.maximum(x + of_state, 0), c
    if cell == "lstm":
        into, forget, candidate, out = np.split(x + of_state, 4, -1)
        c = _sigmoid(forget) * c + _sigmoid(into) * np.tanh(candidate)
        return _sigmoid(out) * np.tanh(c), c
    (reset_x, update_x, new_x), (reset_h, update_h, new_h) = np.split(x, 3, -1), np.split(of_state, 3, -1)
    new = np.tanh(new_x + _sigmoid(reset_x + reset_h) * new_h)
    return (h - new) * _sigmoid(update_x + update_h) + new, c


def _sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def recurrent_case(
    name: str,
    cell: str,
    shape: Shape,
    *,
    dtype: str = "float32",
    bias: bool = False,
    reverse: bool = False,
    units: int = 0,
) -> Case:
    """Return a case of steps, rows and outputs."""
    steps, rows, hidden = shape
    gates = _GATES[CELLS.index(cell)]
    units = units or _UNITS[gates]
    panels, state = -(-hidden // units), TensorLayout((rows, hidden), dtype)
    states = [state] * (2 if cell == "lstm" else 1)
    weights = [TensorLayout((panels, hidden, gates * units), dtype)]
    biases = [TensorLayout((panels, 1, gates * units), dtype)] if bias else []
    inputs = (TensorLayout((steps, rows, gates * hidden), dtype), *weights, *states, *biases)
    attrs = {"cell": CELLS.index(cell), "reverse": int(reverse), "has_bias": int(bias)}
    # A step adds to the errors of those before it.
    terms = max(1, hidden) * 4**steps
    return Case(name, inputs, (TensorLayout((steps, rows, hidden), dtype), *states), attrs, terms=terms)


def cases() -> Iterator[Case]:
    for cell in CELLS:
        for shape in (
            (1, 1, 1), (1, 1, 16), (2, 1, 7), (3, 2, 17), (2, 3, 33), (3, 5, 16), (2, 6, 20), (1, 7, 64),
            (2, 13, 70), (1, 97, 18), (1, 2, 130), (1, 1, 512), (0, 2, 20), (2, 0, 20),
        ):  # fmt: skip
            for bias in (False, True):
                yield recurrent_case(f"{cell}, {list(shape)}, bias={bias}", cell, shape, bias=bias)
        yield recurrent_case(f"{cell}, from the last step", cell, (3, 2, 20), reverse=True, bias=True)
        for dtype in FLOATS[1:]:
            yield recurrent_case(f"{cell}, {dtype}", cell, (2, 3, 20), dtype=dtype, bias=True)
            yield recurrent_case(f"{cell}, {dtype}, reversed", cell, (2, 3, 32), dtype=dtype, reverse=True)
        yield from _strided_cases(cell)
    for units in (16, 32):
        yield recurrent_case(f"panels of {units} outputs", "tanh", (2, 3, 20), units=units, bias=True)


def _strided_cases(cell: str) -> Iterator[Case]:
    for dtype in FLOATS[:2]:
        plain = recurrent_case("", cell, (2, 3, 20), dtype=dtype, bias=True)
        x, panels, *rest = plain.inputs
        y, *states = plain.outputs
        width = x.shape[2]
        batch_first = TensorLayout(x.shape, dtype, (width, 2 * width, 1))
        gaps = TensorLayout(x.shape, dtype, (6 * width + 5, 2 * width, 2))
        ys = [TensorLayout(y.shape, dtype, strides) for strides in ((20, 40, 1), (150, 50, 2))]
        state = TensorLayout((3, 20), dtype, (1, 3))
        turned = [state if item.shape == state.shape else item for item in rest]
        for name, inputs, outputs in (
            ("batches first", (batch_first, panels, *rest), (ys[0], *states)),
            ("gaps", (gaps, panels, *rest), (ys[1], *states)),
            ("turned states", (x, panels, *turned), (y, *[state] * len(states))),
        ):
            yield Case(f"{cell}, {dtype}, {name}", inputs, outputs, plain.attrs, terms=plain.terms)


def refusals() -> Iterator[Refusal]:
    right = recurrent_case("", "lstm", (2, 3, 20), bias=True)
    x, p, h, _, bias = right.inputs
    y = right.outputs[0]
    half = {shape: TensorLayout(shape, "float16") for shape in (y.shape, p.shape, h.shape)}
    wrong, other_panels = TensorLayout((3, 19)), "not the panels of 4 gates of 20 outputs"
    for name, place, layout, match in (
        ("X of float64", 0, TensorLayout(x.shape, "float64"), "X is float64, not a float of 32 or 16 bits"),
        ("X of int32", 0, TensorLayout(x.shape, "int32"), "X is int32, not"),
        ("X of other gates", 0, TensorLayout((2, 3, 60)), "not [2, 3, 80]"),
        ("P of another dtype", 1, half[p.shape], "P is float16, not"),
        ("P with gaps", 1, TensorLayout(p.shape, strides=(1300, 65, 1)), "P is not contiguous"),
        ("P of other outputs", 1, TensorLayout((1, 20, 64)), other_panels),
        ("P of another width", 1, TensorLayout((2, 20, 62)), other_panels),
        ("P that is too narrow", 1, TensorLayout((10, 20, 8)), "P has panels of 2 outputs; this processor"),
        ("H0 of another shape", 2, wrong, "H0 is float32[3, 19], not [3, 20]"),
        ("C0 of another shape", 3, wrong, "C0 is float32[3, 19], not [3, 20]"),
        ("a bias with gaps", 4, TensorLayout(bias.shape, strides=(65, 65, 1)), "bias is not contiguous"),
        ("a bias of another shape", 4, TensorLayout((2, 64)), "bias is float32[2, 64], not [2, 1, 64]"),
        ("Y of rank 2", 5, h, "Y has rank 2, not 3"),
        ("Y of another dtype", 5, half[y.shape], "Y is float16, not"),
        ("HN of another dtype", 6, half[h.shape], "HN is float16, not float32"),
        ("CN of another dtype", 7, half[h.shape], "CN is float16, not float32"),
    ):
        tensors = [*right.inputs, *right.outputs]
        tensors[place] = layout
        yield Refusal(name, tuple(tensors[:5]), tuple(tensors[5:]), match, right.attrs)
    inputs, outputs = right.inputs[:4], right.outputs[:2]
    yield Refusal("one state", inputs, outputs, "this cell has 2 states", right.attrs)
    yield Refusal("no such cell", right.inputs, right.outputs, "no cell 4", {"cell": 4})
    yield from misuses("Recurrent", recurrent_case("", "tanh", (2, 3, 20)))


RECURRENT = OpRow("recurrent", "Recurrent", "RCUR", reference, cases, refusals, sized=True)
