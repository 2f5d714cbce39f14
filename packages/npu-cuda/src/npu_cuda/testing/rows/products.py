"""The rows of the ops that multiply matrices and do more: GemmEpilogue, PackMatrix, PackedGemm."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from npu_cuda import _C
from npu_cuda.testing.case import Array, Attrs, Case, Domain, OpRow, Refusal, TensorLayout
from npu_cuda.testing.misuse import misuses
from npu_cuda.testing.rows.fused import FLOAT16, FLOAT32, fused_attrs
from npu_cuda.testing.rows.gemm import product
from npu_cuda.testing.values import FLOATS

EPILOGUES = (
    "bias", "bias_relu", "relu", "bias_relu_aux", "drelu", "drelu_bgrad", "bgrad", "bias_gelu_aux",
    "dgelu_bgrad",
)  # fmt: skip

Shape = tuple[int, ...]


def gelu_tanh(x: Array) -> Array:
    return np.asarray(0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))))


def gelu_tanh_slope(x: Array) -> Array:
    curve = np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))
    return np.asarray(
        0.5 * (1 + curve) + 0.5 * x * (1 - curve**2) * np.sqrt(2 / np.pi) * (1 + 3 * 0.044715 * x**2)
    )


def epilogue_reference(inputs: Sequence[Array], attrs: Attrs) -> list[Array]:
    name = EPILOGUES[attrs["epilogue"]]
    z = product(inputs, attrs)
    if "bias" in name:
        z = z + inputs[2]
    d = z
    if name.startswith("d"):
        d = z * ((inputs[2] > 0) if "relu" in name else gelu_tanh_slope(inputs[2]))
    elif "relu" in name:
        d = np.maximum(z, 0)
    elif "gelu" in name:
        d = gelu_tanh(z)
    results = [d]
    if name.endswith("_aux"):
        results.append(z)
    if name.endswith("bgrad"):
        results.append(d.reshape(-1, d.shape[-1]).sum(0))
    return results


def epilogue_case(name: str, epilogue: str, sizes: Shape, dtype: str = "float32", **attrs: int) -> Case:
    *rows, n, k = sizes
    a = TensorLayout((k, *rows) if attrs.get("ta") else (*rows, k), dtype)
    b = TensorLayout((n, k) if attrs.get("tb") else (k, n), dtype)
    d, row = TensorLayout((*rows, n), dtype), TensorLayout((n,), dtype)
    third = (row,) if "bias" in epilogue else (d,) if epilogue.startswith("d") else ()
    second = (d,) if epilogue.endswith("_aux") else (row,) if epilogue.endswith("bgrad") else ()
    given = {**attrs, "epilogue": EPILOGUES.index(epilogue)}
    terms = k * (max(1, int(np.prod(rows))) if "bgrad" in epilogue else 1)
    return Case(name, (a, b, *third), (d, *second), given, terms=terms)


def epilogue_cases() -> Iterator[Case]:
    for epilogue in EPILOGUES:
        for sizes in (
            (1, 1, 1),
            (1, 70, 9),
            (7, 33, 40),
            (150, 70, 300),
            (0, 7, 5),
            (5, 7, 0),
            (3, 4, 20, 9),
            (0, 4, 20, 9),
        ):
            yield epilogue_case(f"{epilogue} {sizes}", epilogue, sizes)
        for dtype in ("float16", "bfloat16", "float64"):
            yield epilogue_case(f"{epilogue} {dtype}", epilogue, (7, 33, 40), dtype)
        yield epilogue_case(f"{epilogue} ta=1 tb=1", epilogue, (7, 33, 40), ta=1, tb=1)
    plain = epilogue_case("", "bias_relu_aux", (7, 33, 40))
    gaps = TensorLayout((7, 33), strides=(70, 2))
    yield Case("D and aux with gaps", plain.inputs, (gaps, gaps), plain.attrs, terms=40)
    row = TensorLayout((33,), strides=(3,))
    yield Case("a bias with gaps", (*plain.inputs[:2], row), plain.outputs, plain.attrs, terms=40)


def epilogue_refusals() -> Iterator[Refusal]:
    a, b, d, row = TensorLayout((4, 5)), TensorLayout((5, 6)), TensorLayout((4, 6)), TensorLayout((6,))
    wide, half = TensorLayout((2, 4, 5)), TensorLayout((6,), "float16")
    each = TensorLayout((2, 5, 6))
    for name, epilogue, inputs, outputs, match in (
        ("no such epilogue", 9, (a, b, row), (d,), "epilogue is 9, more than 8"),
        ("no bias", 0, (a, b), (d,), "epilogue 0 has 3 inputs and 1 outputs, not 2 and 1"),
        ("no dbias", 6, (a, b), (d,), "epilogue 6 has 2 inputs and 2 outputs, not 2 and 1"),
        ("a bias of another size", 0, (a, b, TensorLayout((5,))), (d,), "bias is [5], a row of D is [4, 6]"),
        ("a bias of another dtype", 0, (a, b, half), (d,), "bias is float16, not float32"),
        ("dbias of rank 2", 6, (a, b), (d, TensorLayout((1, 6))), "dbias is [1, 6], a row of D is [4, 6]"),
        ("aux of another shape", 4, (a, b, row), (d,), "aux is [6], D is [4, 6]"),
        ("several matrices", 2, (wide, each), (TensorLayout((2, 4, 6)),), "which is more than one matrix"),
        ("other sizes", 2, (a, a), (d,), "B is float32[4, 5], not [5, 5]"),
    ):  # fmt: skip
        yield Refusal(name, inputs, outputs, match, attrs={"epilogue": epilogue})
    yield Refusal("no attributes", (a, b), (d,), "has no default attributes", status="InvalidArgument")


def _panels(shape: Shape, dtype: str = "float32", width: int | None = None) -> TensorLayout:
    """Return the layout of the panels of matrices of a shape."""
    *batch, k, n = shape
    width = width or next((some for some in (16, 32) if n <= some), 64)
    return TensorLayout((*batch, -(-n // width), k, width), dtype)


def pack_reference(inputs: Sequence[Array], attrs: Attrs, shapes: Sequence[Shape]) -> list[Array]:  # noqa: ARG001
    (b,) = inputs
    *batch, panels, k, width = shapes[0]
    padded = np.zeros((*batch, k, panels * width))
    padded[..., : b.shape[-1]] = b
    return [padded.reshape(*batch, k, panels, width).swapaxes(-2, -3)]


def pack_cases() -> Iterator[Case]:
    for shape in ((1, 1), (5, 16), (40, 70), (33, 129), (3, 9, 20), (0, 7), (7, 0), (2, 3, 4, 5)):
        yield Case(f"{shape}", (TensorLayout(shape),), (_panels(shape),), exact=True)
    for dtype in ("float16", "bfloat16", "float64"):
        yield Case(dtype, (TensorLayout((33, 70), dtype),), (_panels((33, 70), dtype),), exact=True)
    turned = TensorLayout((33, 70), strides=(1, 33))
    yield Case("transposed in memory", (turned,), (_panels((33, 70)),), exact=True)
    yield Case("with gaps", (TensorLayout((33, 70), strides=(150, 2)),), (_panels((33, 70)),), exact=True)
    yield Case("panels of 5 columns", (TensorLayout((3, 17)),), (_panels((3, 17), width=5),), exact=True)


def pack_refusals() -> Iterator[Refusal]:
    b, p = TensorLayout((4, 20)), _panels((4, 20), width=16)
    for name, given, made, match in (
        ("fewer panels", b, TensorLayout((1, 4, 16)), "not the panels of float32[4, 20]"),
        ("no columns", b, TensorLayout((2, 4, 0)), "not the panels of float32[4, 20]"),
        ("another k", b, TensorLayout((2, 5, 16)), "not the panels of float32[4, 20]"),
        ("another rank", b, TensorLayout((4, 20)), "not the panels of float32[4, 20]"),
        ("P with gaps", b, TensorLayout((2, 4, 16), strides=(80, 20, 1)), "P is not contiguous"),
        ("int32", TensorLayout((4, 20), "int32"), TensorLayout((2, 4, 16), "int32"), "B is int32, not a"),
        ("another dtype", b, TensorLayout((2, 4, 16), "float16"), "P is float16, not float32"),
        ("a vector", TensorLayout((20,)), TensorLayout((2, 16)), "B has rank 1, less than 2"),
    ):  # fmt: skip
        yield Refusal(name, (given,), (made,), match)
    yield from misuses("PackMatrix", Case("right", (b,), (p,)))


def packed_reference(inputs: Sequence[Array], attrs: Attrs, shapes: Sequence[Shape]) -> list[Array]:
    a, p, *rest = inputs
    *batch, panels, k, width = p.shape
    joined = p.swapaxes(-2, -3).reshape(*batch, k, panels * width)
    z = a @ joined[..., : shapes[0][-1]]
    if attrs["has_bias"]:
        z = z + rest.pop(0)
    if attrs["steps"]:  # z * other + z
        z = z * rest[0] + z
    return [z]


def packed_case(
    name: str,
    a: Shape,
    b: Shape,
    d: Shape,
    *,
    dtype: str = "float32",
    other: TensorLayout | None = None,
    bias: bool = False,
    width: int | None = None,
) -> Case:
    """Return a product, or with ``other`` the product z of which z * other + z is computed."""
    inputs = [TensorLayout(a, dtype), _panels(b, dtype, width)]
    attrs: Attrs = {"has_bias": int(bias)}
    if bias:
        inputs.append(TensorLayout((d[-1],), dtype))
    if other is not None:
        inputs.append(other)
        temporary = {"float16": FLOAT16, "bfloat16": (4, 16), "float64": (2, 64)}.get(dtype, FLOAT32)
        steps = [("Mul", (0, 1), (3,)), ("EltwiseAdd", (3, 0), (2,))]
        attrs = {**attrs, **fused_attrs(steps, [temporary])}
    return Case(name, tuple(inputs), (TensorLayout(d, dtype),), attrs, terms=a[-1])


def packed_cases() -> Iterator[Case]:
    for m, n, k in (
        (1, 1, 1), (1, 16, 16), (1, 70, 33), (4, 8, 3), (7, 65, 19), (13, 33, 5), (64, 64, 64),
        (150, 130, 600),
        (0, 5, 3), (3, 5, 0),
        *((rows, 130, 300) for rows in (1, 2, 3, 4, 5, 8, 9, 10, 11)),
    ):  # fmt: skip
        for bias in (False, True):
            yield packed_case(f"{m} x {k} x {n}, bias={bias}", (m, k), (k, n), (m, n), bias=bias)
    for dtype in ("float16", "bfloat16", "float64"):
        for m in (1, 2, 9):
            yield packed_case(f"{m} rows of {dtype}", (m, 40), (40, 70), (m, 70), dtype=dtype, bias=True)
        other = TensorLayout((9, 70), dtype)
        yield packed_case(f"steps of {dtype}", (9, 40), (40, 70), (9, 70), dtype=dtype, other=other)
    yield packed_case("rows of rows", (3, 5, 40), (40, 20), (3, 5, 20), bias=True)
    yield packed_case("each by its own", (3, 5, 40), (3, 40, 20), (3, 5, 20), bias=True)
    yield packed_case("broadcast axes", (3, 1, 5, 9), (4, 9, 20), (3, 4, 5, 20))
    for name, other in (
        ("all", TensorLayout((3, 5, 70))), ("a row", TensorLayout((70,))), ("a column", TensorLayout((5, 1))),
        ("one of each", TensorLayout((3, 1, 1))), ("a number", TensorLayout(())),
        ("transposed in memory", TensorLayout((3, 5, 70), strides=(350, 1, 5))),
        ("float16", TensorLayout((3, 5, 70), "float16")), ("integers", TensorLayout((3, 5, 70), "int8")),
    ):  # fmt: skip
        # A hundred times a sum that cancels would have a hundred times its error.
        domain: Domain = "positive" if name == "integers" else "any"
        a, d = (3, 5, 40), (3, 5, 70)
        for case in (
            packed_case(f"steps with {name}", a, (40, 70), d, other=other, bias=True),
            packed_case(f"batches of steps with {name}", a, (3, 40, 70), d, other=other),
        ):
            yield replace(case, domain=domain)
    many = TensorLayout((300, 130))
    yield packed_case("steps on many parts", (300, 300), (300, 130), (300, 130), other=many, bias=True)
    for name, other in (("all", TensorLayout((64, 64))), ("a number", TensorLayout(()))):
        yield packed_case(f"steps with {name}, over whole rows", (64, 40), (40, 64), (64, 64), other=other)
    yield from _streamed_cases()
    row = packed_case("", (1, 1, 40), (40, 70), (1, 1, 70), other=TensorLayout((1, 1, 70)))
    yield Case("a row", row.inputs, row.outputs, row.attrs, terms=40)
    plain = packed_case("", (9, 40), (40, 70), (9, 70))
    turned = TensorLayout((9, 40), strides=(1, 9))
    yield Case("A transposed in memory", (turned, plain.inputs[1]), plain.outputs, plain.attrs, terms=40)
    gaps = TensorLayout((9, 70), strides=(150, 2))
    yield Case("D with gaps", plain.inputs, (gaps,), plain.attrs, terms=40)
    half = packed_case("", (9, 40), (40, 70), (9, 70), dtype="bfloat16")
    yield Case("bfloat16 to float32", half.inputs, (TensorLayout((9, 70)),), half.attrs, terms=40)


def _streamed_cases() -> Iterator[Case]:
    # A row or two by several panels at a time, each as wide as the widest tile; and some that remain.
    width = {64: 64, 32: 16, 16: 8}[_C.vector_bytes()]
    for m, panels, k in ((1, 2, 33), (1, 4, 40), (1, 17, 40), (2, 2, 7), (2, 5, 40), (1, 5, 0)):
        n = panels * width + 2
        for bias in (False, True):
            name = f"{panels} panels, {m} x {k}, bias={bias}"
            yield packed_case(name, (m, k), (k, n), (m, n), bias=bias, width=width)
    n = 5 * width + 2
    for dtype in FLOATS:
        for m in (1, 2):
            other = TensorLayout((m, n), dtype)
            name = f"{m} rows of {dtype}, steps on panels"
            yield packed_case(
                name, (m, 40), (40, n), (m, n), dtype=dtype, other=other, bias=True, width=width
            )
    two = packed_case("", (2, 40), (40, n), (2, n), bias=True, width=width)
    gaps = TensorLayout((2, 40), strides=(100, 2)), *two.inputs[1:]
    yield Case("two rows with gaps", gaps, (TensorLayout((2, n), strides=(700, 2)),), two.attrs, terms=40)


def packed_refusals() -> Iterator[Refusal]:
    right = packed_case("", (4, 5), (5, 70), (4, 70), bias=True)
    a, p, bias = right.inputs
    (d,) = right.outputs
    few = TensorLayout((24, 5, 3))
    attrs = {"has_bias": 1}
    for name, inputs, output, match in (
        ("another k", (TensorLayout((4, 6)), p, bias), d, "not the panels of [6, 70]"),
        ("another n", (a, p, bias), TensorLayout((4, 270)), "not the panels of [5, 270]"),
        ("panels of 3 columns", (a, few, bias), d, "panels of 3 columns; this processor takes a multiple of"),
        ("another m", (a, p, bias), TensorLayout((3, 70)), "D is float32[3, 70], not [4, 70]"),
        ("no bias", (a, p), d, "it has a bias, but only two inputs"),
        ("a bias of another size", (a, p, TensorLayout((4,))), d, "bias is [4], a row of D is [4, 70]"),
        ("more than a bias", (a, p, bias, bias), d, "it has more tensors than a product, but no steps"),
        ("P of another dtype", (a, TensorLayout(p.shape, "float16"), bias), d, "P is float16, not float32"),
        ("D of another dtype", (a, p, bias), TensorLayout((4, 70), "float16"), "D is float16, not float32"),
        ("int32", (TensorLayout((4, 5), "int32"), p, bias), d, "A is int32, not a float"),
        ("D of rank 1", (a, p, bias), TensorLayout((70,)), "D has rank 1, less than 2"),
        ("A of a larger rank", (TensorLayout((1, 4, 5)), p, bias), d, "A is [1, 4, 5], D, to which it broa"),
    ):  # fmt: skip
        yield Refusal(name, inputs, (output,), match, attrs=attrs)
    steps = {**attrs, **fused_attrs([("Gemm", (0, 0), (1,))], [])}
    yield Refusal(
        "a step that is not pointwise", (a, p, bias), (d,), "there is no pointwise op of kind 2", attrs=steps
    )


PRODUCT_ROWS = (
    OpRow("gemm_epilogue", "GemmEpilogue", "GEPI", epilogue_reference, epilogue_cases, epilogue_refusals),
    OpRow("pack_matrix", "PackMatrix", None, pack_reference, pack_cases, pack_refusals, sized=True),
    OpRow("packed_gemm", "PackedGemm", "PGEM", packed_reference, packed_cases, packed_refusals, sized=True),
)
