"""The rows of ops that move elements by index, sort them, or make them from places."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from npu_cuda.testing.case import Attrs, Case, OpRow, Reference, Refusal, TensorLayout
from npu_cuda.testing.misuse import misuses
from npu_cuda.testing.rows import index_references as references

ITEMS = ("bool", "float16", "float32", "int64", "complex128")  # one dtype of each size
NUMBERS = (
    "float32", "float16", "bfloat16", "float64", "int64", "int32", "int16", "int8", "uint8", "bool",
)  # fmt: skip
Shapes = Sequence[tuple[int, ...]]


def layout(shape: tuple[int, ...], dtype: str = "float32", **more: Any) -> TensorLayout:
    return TensorLayout(shape, dtype, **more)


def case(
    name: str,
    shapes: Shapes,
    y: tuple[int, ...],
    dtype: str = "float32",
    *,
    attrs: Attrs | None = None,
    indices: Mapping[int, int] | None = None,
    index_dtype: str = "int64",
    in_place: bool = False,
) -> Case:
    """Return an exact case with one output; its inputs have one dtype, but for the indices."""
    limits = indices or {}
    inputs = tuple(layout(shape, index_dtype if i in limits else dtype) for i, shape in enumerate(shapes))
    aliases = {0: 0} if in_place else {}
    return Case(
        f"{dtype}, {name}", inputs, (layout(y, dtype),), attrs or {}, aliases, exact=True, indices=limits
    )


def selections() -> Iterator[Case]:
    for dtype in ITEMS:
        yield case("rows", [(9, 6), (4, 3)], (4, 3, 6), dtype, indices={1: 9})
        yield case("items", [(9,), (40,)], (40,), dtype, indices={1: 9})
    axis = {"axis": 1, "wrap": 1}
    yield case("an inner axis", [(3, 5, 4), (2,)], (3, 2, 4), attrs=axis, indices={1: 5}, index_dtype="int32")
    yield case("two axes", [(3, 5, 4, 2), (7,), (7,)], (3, 7, 2), attrs=axis, indices={1: 5, 2: 4})
    yield case("long rows", [(5, 4096), (9,)], (9, 4096), indices={1: 5})
    yield case("no index", [(5, 4), (0,)], (0, 4), indices={1: 5})
    yield case("the last axis", [(70, 5), (3,)], (70, 3), attrs={"axis": -1}, indices={1: 5})


def puts() -> Iterator[Case]:
    for dtype in ITEMS:
        yield case("rows", [(9, 6), (12, 6), (12,)], (9, 6), dtype, indices={2: 9})
    for dtype in NUMBERS:
        adds = {"accumulate": 1}
        sums = case("sums of items", [(5,), (6,), (6,)], (5,), dtype, attrs=adds, indices={2: 5})
        yield replace(sums, exact=False)
    adds = {"axis": 1, "accumulate": 1, "wrap": 1}
    shapes = [(2, 5, 4, 3), (2, 7, 3), (7,), (7,)]
    yield case("sums of two axes", shapes, (2, 5, 4, 3), "int32", attrs=adds, indices={2: 5, 3: 4})
    inner = {"axis": 1}
    yield case("in place", [(3, 5), (3, 2), (2,)], (3, 5), attrs=inner, indices={2: 5}, in_place=True)
    yield case(
        "many", [(50, 3), (1500, 3), (1500,)], (50, 3), "int64", attrs={"accumulate": 1}, indices={2: 50}
    )
    yield case("nothing", [(3, 5), (0, 5), (0,)], (3, 5), indices={2: 3})


def saving_puts() -> Iterator[Case]:
    """Yield the puts with a second result: what was there before."""
    for put in puts():
        yield replace(put, outputs=(*put.outputs, put.inputs[1]), name=f"{put.name}, saved")


def embedding_gradients() -> Iterator[Case]:
    for dtype in ("float32", "float64", "int64"):
        gradient, index = layout((2, 6, 5), dtype), layout((2, 6), "int64")
        for padding in (-1, 1):
            yield Case(
                f"{dtype}, padding {padding}", (gradient, index), (layout((4, 5), dtype),),
                {"padding_index": padding}, terms=12, indices={1: 4},
            )  # fmt: skip


def gathers() -> Iterator[Case]:
    for dtype in ITEMS:
        yield case("columns", [(4, 9), (3, 20)], (3, 20), dtype, attrs={"axis": 1}, indices={1: 9})
    yield case("rows", [(9, 4, 3), (20, 4, 2)], (20, 4, 2), indices={1: 9}, index_dtype="int32")
    yield case("a scalar", [(), ()], (), indices={1: 1})
    yield case("nothing", [(4, 3), (0, 3)], (0, 3), indices={1: 4})


def scatters() -> Iterator[Case]:
    for dtype in ITEMS:
        yield case("columns", [(4, 9), (3, 20), (3, 21)], (4, 9), dtype, attrs={"axis": 1}, indices={1: 9})
        yield case("one item", [(4, 9), (2, 3), ()], (4, 9), dtype, indices={1: 4})
    for dtype in ("float64", "int32", "bool"):
        adds = {"accumulate": 1}
        yield case("sums", [(5, 3), (3, 2), (4, 3)], (5, 3), dtype, attrs=adds, indices={1: 5})
    yield case("in place", [(4, 9), (3, 2), (3, 2)], (4, 9), attrs={"axis": 1}, indices={1: 9}, in_place=True)
    yield case("nothing", [(4, 9), (0, 9), (0, 9)], (4, 9), indices={1: 4})


def concatenations() -> Iterator[Case]:
    for dtype in ITEMS:
        yield case("columns", [(4, 9), (4, 1), (4, 0), (4, 7)], (4, 17), dtype, attrs={"axis": 1})
        # Neighbours are copied together, as many as are aligned.
        parts = [(4, 8), (4, 2), (4, 6), (4, 16)]
        yield case("wide columns", parts, (4, 32), dtype, attrs={"axis": 1})
    yield case("rows", [(2, 5), (40, 5)], (42, 5))
    yield case("a new axis", [(2, 5), (2, 5), (2, 5)], (2, 5, 3), attrs={"axis": -1})
    yield case("64 inputs", [(3,)] * 64, (192,))
    columns = layout((33, 40), strides=(1, 33))
    yield Case("strided", (columns, columns), (layout((66, 40), strides=(50, 1)),), exact=True)


def slices() -> Iterator[Case]:
    for dtype in ITEMS:
        yield case("columns", [(4, 9), (4, 3)], (4, 9), dtype, attrs={"axis": 1, "start": 1, "step": 3})
    yield case("a row", [(4, 9), (9,)], (4, 9), attrs={"start": 2}, in_place=True)
    yield case("nothing", [(4, 9), (0, 9)], (4, 9))


def maps() -> Iterator[Case]:
    for dtype in ITEMS:
        reverse = {"start0": 4, "step0": -1, "start1": 1, "step1": 3}
        yield case("a part, one axis reversed", [(5, 9)], (5, 3), dtype, attrs=reverse)
        yield case("filled", [(3, 4), ()], (5, 9), dtype, attrs={"mode": 1, "start0": -1, "start1": -3})
    yield case("rows reversed", [(5, 9)], (5, 9), attrs={"start0": 4, "step0": -1})
    yield case("columns reversed", [(2, 3, 9)], (2, 3, 9), attrs={"start2": 8, "step2": -1})
    for mode, name in enumerate(("wrapped", "reflected", "clamped"), 2):
        yield case(name, [(4, 5)], (8, 9), attrs={"mode": mode, "start0": -2, "start1": -3})
        yield case(f"{name}, rows", [(7, 5)], (9, 5), attrs={"mode": mode, "start0": -1})
        backwards = {"mode": mode, "start0": 6, "step0": -1}
        yield case(f"{name}, backwards", [(5,)], (8,), attrs=backwards)
    yield case("wrapped many times", [(2, 3)], (5, 31), attrs={"mode": 2, "start1": -4})
    around = {"mode": 1, **{f"start{axis}": -1 for axis in range(4)}}
    yield case("filled around four axes", [(2, 3, 1, 5), ()], (4, 5, 3, 7), attrs=around)
    yield case("repeated along new axes", [(3,)], (2, 2, 7), attrs={"mode": 2})
    yield case("an axis of size 1, beside it", [(3, 1), ()], (3, 1), attrs={"mode": 1, "start1": -1})
    yield case("an outer axis of size 1, beside it", [(1, 4)], (1, 4), attrs={"mode": 4, "start0": 3})
    yield case("a scalar", [()], ())
    yield case("nothing", [(4, 5)], (4, 0))


def triangles() -> Iterator[Case]:
    for dtype in ITEMS:
        for upper in (0, 1):
            attrs = {"upper": upper, "diagonal": 1 - 3 * upper}
            yield case(f"upper {upper}", [(2, 5, 7)], (2, 5, 7), dtype, attrs=attrs)
    yield case("nothing left", [(3, 4)], (3, 4), attrs={"diagonal": -9})
    yield case("all left", [(3, 4)], (3, 4), attrs={"diagonal": 2**63 - 1})
    yield case("nothing", [(3, 0)], (3, 0))


def one_hots() -> Iterator[Case]:
    for dtype in ("int64", "int32"):
        inputs, outputs = (layout((3, 4), dtype),), (layout((3, 4, 7), "int64"),)
        yield Case(dtype, inputs, outputs, exact=True, indices={0: 7})
    yield Case("nothing", (layout((0,), "int64"),), (layout((0, 7), "int64"),), exact=True)


def ranges() -> Iterator[Case]:
    for dtype in ("float32", "float64", "int64", "int32", "int16", "int8", "uint8"):
        yield Case(dtype, (), (layout((11,), dtype),), {"start": 50, "step": 3}, exact=True)
    yield Case("downwards", (), (layout((3000,)),), {"start": 0.5, "step": -0.25}, exact=True)
    yield Case("nothing", (), (layout((0,)),), exact=True)


def sorts() -> Iterator[Case]:
    for dtype in NUMBERS:
        for descending in (0, 1):
            yield sort_case(dtype, (3, 33), 33, descending=descending)
    for kept in (5, 300, 700):
        yield sort_case("float32", (2, 700), kept, descending=1)
        yield sort_case("int64", (2, 700), kept)
    yield sort_case("float32", (2100,), 2100)
    yield sort_case("int16", (40, 3), 40, axis=0)
    yield sort_case("int8", (2, 40, 3), 4, axis=1)
    yield sort_case("float32", (), 1)
    yield sort_case("float32", (3, 0), 0)
    for dtype in ("float32", "float16", "bfloat16"):
        layouts = layout((12,), dtype), layout((12,), "int64")
        yield Case(f"{dtype}, special values", layouts[:1], layouts, special=True, exact=True)


def sort_case(dtype: str, shape: tuple[int, ...], kept: int, *, axis: int = -1, descending: int = 0) -> Case:
    result = list(shape)
    if shape:
        result[axis] = kept
    outputs = layout(tuple(result), dtype), layout(tuple(result), "int64")
    name = f"{dtype}{list(shape)}, {kept} of axis {axis}{', descending' if descending else ''}"
    attrs = {"axis": axis, "descending": descending}
    return Case(name, (layout(shape, dtype),), outputs, attrs, exact=True)


def tops() -> Iterator[Case]:
    """Yield cases whose elements differ: the reference has others of equal ones."""
    for dtype in ("float32", "float64", "int64", "int32"):
        for largest in (0, 1):
            yield top_case(dtype, (3, 33), 5, largest=largest)
            yield top_case(dtype, (2, 700), 3, largest=largest)
    for kept in (1, 11, 12, 700):
        yield top_case("float32", (2, 700), kept)
    yield top_case("float16", (2, 6), 4)
    yield top_case("bfloat16", (2, 6), 4)
    yield top_case("float32", (2, 40, 3), 4, axis=1)
    yield top_case("float32", (40, 3), 1, axis=0, sorted=0)
    yield top_case("float32", (), 1)
    yield top_case("float32", (3, 4), 0)


def top_case(
    dtype: str, shape: tuple[int, ...], kept: int, *, axis: int = -1, largest: int = 1, sorted: int = 1
) -> Case:
    case = sort_case(dtype, shape, kept, axis=axis, descending=largest)
    attrs = {"axis": axis, "largest": largest, "sorted": sorted}
    return Case(f"{case.name}, sorted={sorted}", case.inputs, case.outputs, attrs, exact=True)


# ---- refusals ----

MOST_TENSORS = 64  # of a call

Wrong = tuple[str, Sequence[TensorLayout], Sequence[TensorLayout], Attrs, str]
M, N, Z, P = layout((4, 6)), layout((3,), "int64"), layout((3, 6)), layout((4, 6), "int64")
V, C = layout((3,)), layout((4, 6), strides=(1, 4))

WRONG: dict[str, list[Wrong]] = {
    "IndexSelect": [
        ("no such axis", (M, N), (Z,), {"axis": 2}, "has rank 2, and no axis 2"),
        ("another flag", (M, N), (Z,), {"wrap": 2}, "wrap is 2, not 0 or 1"),
        ("another shape", (M, N), (M,), {}, "not what indices of int64[3] select of float32[4, 6]"),
        ("too many indices", (M, N, N, N), (V,), {}, "has fewer axes than indices, 3 from axis 0"),
        ("a mask", (M, layout((3,), "bool")), (Z,), {}, "an index is bool, not int64 or int32"),
        ("two dtypes of indices", (M, N, layout((3,), "int32")), (V,), {}, "an index is int32, not int64"),
        ("two shapes of indices", (M, N, layout((1,), "int64")), (V,), {}, "an index is [3], another is [1]"),
        ("strided", (C, N), (Z,), {}, "an input is not contiguous"),
        ("a strided result", (M, N), (layout((3, 6), strides=(1, 3)),), {}, "an output is not contiguous"),
        ("another dtype", (M, N), (layout((3, 6), "int32"),), {}, "y is int32, not float32"),
    ],
    "IndexPut": [
        ("another flag", (M, Z, N), (M,), {"accumulate": 3}, "accumulate is 3, not 0 or 1"),
        ("other values", (M, M, N), (M,), {}, "values is float32[4, 6], not what indices"),
        ("another result", (M, Z, N), (Z,), {}, "x is [4, 6], y is [3, 6]"),
        ("more is saved", (M, Z, N), (M, M), {}, "values is [3, 6], what is saved is [4, 6]"),
        ("others are saved", (M, Z, N), (M, P), {}, "what is saved is int64, not float32"),
        (
            "sums of pairs",
            [layout((4, 6), "complex64"), layout((3, 6), "complex64"), N],
            [layout((4, 6), "complex64")],
            {"accumulate": 1},
            "a tensor is complex64, not a real number",
        ),
    ],
    "EmbeddingBwd": [
        ("another dtype", (Z, N), (layout((4, 6), "float64"),), {}, "dw is float64, not float32"),
        ("another shape", (M, N), (M,), {}, "dy is float32[4, 6], not what indices"),
    ],
    "Gather": [
        ("another shape", (M, layout((3, 6), "int64")), (M,), {}, "the index is [3, 6], y is [4, 6]"),
        ("too large", (M, layout((3, 7), "int64")), (layout((3, 7)),), {}, "is larger than x, float32[4, 6]"),
    ],
    "Scatter": [
        ("a small source", (M, layout((4, 6), "int64"), Z), (M,), {}, "is larger than the source"),
        ("another rank", (M, N, V), (M,), {}, "is larger than x"),
        ("no places of another rank", (M, layout((0,), "int64"), V), (M,), {}, "is larger than x"),
    ],
    "Cat": [
        ("other rows", (M, Z), (layout((4, 12)),), {"axis": 1}, "they differ in more than axis 1"),
        ("too few places", (M, M), (layout((9, 6)),), {}, "the inputs have 8 places along axis 0"),
        ("scalars", (layout(()),), (layout(()),), {}, "the inputs have 1 places along axis 0"),
    ],
    "SliceScatter": [
        ("outside", (M, Z), (M,), {"start": 2}, "3 places from 2 by 1 are not inside axis 0 of size 4"),
        ("far outside", (M, Z), (M,), {"start": 2**63 - 1}, "by 1 are not inside axis 0 of size 4"),
        ("in far steps", (M, Z), (M,), {"step": 2**63 - 1}, "are not inside axis 0 of size 4"),
        ("a scalar", (layout(()), layout(())), (layout(()),), {}, "y has rank 0, and no slices"),
    ],
    "AxisMap": [
        ("no such mode", (M,), (M,), {"mode": 5}, "mode is 5, not 0 to 4"),
        ("nothing to fill with", (M,), (M,), {"mode": 1}, "mode 1 needs a second input"),
        ("more than is needed", (M, layout(())), (M,), {}, "only mode 1 has something to fill with"),
        ("many to fill with", (M, V), (M,), {"mode": 1}, "what fills has more than one element"),
        ("outside", (M,), (M,), {"start0": 1}, "axis 0 of size 4 has no places 1 to 4 in mode 0"),
        ("far outside", (M,), (M,), {"step0": 2**62}, "axis 0 has no 4 places from 0 by 4611686018427387904"),
        ("reflected twice", (M,), (M,), {"mode": 3, "start0": -4}, "has no places -4 to -1 in mode 3"),
        ("fewer axes", (M,), (V,), {}, "x is [4, 6], y is [3]"),
    ],
    "Triangle": [
        ("a vector", (V,), (V,), {}, "x is not a matrix: float32[3]"),
        ("another flag", (M,), (M,), {"upper": -1}, "upper is -1, not 0 or 1"),
    ],
    "OneHot": [
        ("another shape", (N,), (layout((4, 7), "int64"),), {}, "the index is [3], y is [4, 7]"),
        ("another dtype", (N,), (layout((3, 7)),), {}, "y is float32, not int64"),
    ],
    "Arange": [
        ("truths", (), (layout((3,), "bool"),), {}, "y is bool, which has no range"),
        ("halves", (), (layout((3,), "float16"),), {}, "a range of float16 is rounded otherwise by PyTorch"),
        ("fractions", (), (N,), {"step": 0.5}, "integers have no range from 0.000000 by 0.500000"),
        ("a matrix", (), (M,), {}, "y is not a vector"),
    ],
    "Sort": [
        ("other indices", (M,), (M, M), {}, "indices is float32, not int64"),
        ("more than there are", (Z,), (M, P), {"axis": 0}, "x is [3, 6], values is [4, 6]"),
        ("other rows", (Z,), (M, P), {}, "they differ in more than axis 1"),
        ("another flag", (M,), (M, P), {"descending": 2}, "descending is 2, not 0 or 1"),
    ],
    "TopK": [
        ("other indices", (M,), (M, M), {}, "indices is float32, not int64"),
        ("more than there are", (Z,), (M, P), {"axis": 0}, "x is [3, 6], values is [4, 6]"),
        ("another flag", (M,), (M, P), {"largest": 2}, "largest is 2, not 0 or 1"),
        ("another order", (M,), (M, P), {"sorted": 2}, "sorted is 2, not 0 or 1"),
    ],
}  # fmt: skip


def _row(
    name: str, op: str, schema: str | None, cases: Callable[[], Iterable[Case]], reference: Reference
) -> OpRow:
    def refusals() -> Iterable[Refusal]:
        for wrong, inputs, outputs, attrs, match in WRONG[op]:
            yield Refusal(wrong, tuple(inputs), tuple(outputs), match, attrs)
        calls = misuses(op, next(iter(cases())))
        yield from (call for call in calls if len(call.inputs) <= MOST_TENSORS)

    return OpRow(name, op, schema, reference, cases, refusals, sized=True)


INDEX_ROWS = (
    _row("index_select", "IndexSelect", "IDXS", selections, references.select),
    _row("index_put", "IndexPut", "IDXP", lambda: (*saving_puts(), *puts()), references.put),
    _row("embedding_bwd", "EmbeddingBwd", "EMBB", embedding_gradients, references.embedding_gradient),
    _row("gather", "Gather", "GATH", gathers, references.gather),
    _row("scatter", "Scatter", "SCAT", scatters, references.scatter),
    _row("cat", "Cat", "CATT", concatenations, references.concatenate),
    _row("slice_scatter", "SliceScatter", "SLCE", slices, references.slice_scatter),
    _row("axis_map", "AxisMap", "AMAP", maps, references.axis_map),
    _row("triangle", "Triangle", "TRIA", triangles, references.triangle),
    _row("one_hot", "OneHot", None, one_hots, references.one_hot),
    _row("arange", "Arange", "ARNG", ranges, references.arange),
    _row("sort", "Sort", "SORT", sorts, references.sort),
    _row("top_k", "TopK", "TOPK", tops, references.top),
)
