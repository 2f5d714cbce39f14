"""The rows of ops on lists: the list forms of pointwise ops, whose references are theirs, and reductions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from npu_cuda import _C
from npu_cuda.testing.case import Array, Attrs, Case, OpRow, Refusal, TensorLayout
from npu_cuda.testing.misuse import misuses
from npu_cuda.testing.rows.elementwise import SINGLE, Sample, samples
from npu_cuda.testing.values import FLOATS

FORMS = {
    "MultiSgd": "SgdStep", "MultiAdam": "AdamStep", "MultiSgdMomentum": "SgdMomentumStep",
    "MultiAmsgrad": "AmsgradStep", "MultiStepInc": "StepInc", "MultiBiasCorr": "BiasCorr",
    "MultiClipByNorm": "ClipByNorm", "MultiUnscale": "Unscale",
}  # fmt: skip
RAGGED = ((7,), (), (0, 3), (1,), (33, 20), (4099,), (5, 2, 2000))
# Places: more than a table of a launch has, of three operands and of one; those of the emulator are small.
MANY, MANY_SINGLE = (100, 170) if _C.build_info()["mode"] == "EMULATE" else (400, 640)


def _snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def _by_place(flat: Sequence[Any], length: int) -> Iterator[tuple[Any, ...]]:
    """Yield the tensors at each place of lists that follow one another."""
    return zip(*(flat[start : start + length] for start in range(0, len(flat), length)), strict=True)


@dataclass(frozen=True, slots=True)
class _Form:
    """A list form of a pointwise op.

    Attributes:
        lines: That of the op in the table, and of the same op with further inputs.
    """

    name: str
    sample: Sample
    lines: tuple[Mapping[str, Any], ...]

    def reference(self, inputs: Sequence[Array], attrs: Attrs, shapes: Sequence[Any]) -> list[Array]:
        length = len(shapes) // len(self.lines[0]["outputs"])
        results = []
        for tensors in _by_place(inputs, length):
            with np.errstate(all="ignore"):
                result = self.sample.reference(*(torch.from_numpy(np.array(x)) for x in tensors), **attrs)
            results.append([each.numpy() for each in (result if isinstance(result, list) else [result])])
        return [each for output in zip(*results, strict=True) for each in output]

    def case(self, name: str, layouts: Sequence[TensorLayout], line: Mapping[str, Any] | None = None) -> Case:
        line = line or self.lines[0]
        dtype = self.sample.yields
        inputs = [
            TensorLayout((), layout.dtype) if name in SINGLE else layout
            for name in line["inputs"]
            for layout in layouts
        ]
        outputs = [
            replace(layout, dtype=dtype or layout.dtype) for _ in line["outputs"] for layout in layouts
        ]
        attrs = {"beta1": 0.9} if "BiasCorr" in self.name else {}
        return Case(name, tuple(inputs), tuple(outputs), attrs, domain=self.sample.domain)

    def cases(self) -> Iterator[Case]:
        computed = self.lines[0]["computed_in"]
        kinds = (("f32", FLOATS), ("f64", ("float64",)), ("i64", ("int64",)))
        dtypes = self.sample.dtypes or tuple(
            dtype for kind, known in kinds if kind in computed for dtype in known
        )
        for dtype in dtypes:
            yield self.case(f"{dtype}, ragged", [TensorLayout(shape, dtype) for shape in RAGGED])
        ragged = [TensorLayout(shape, dtypes[0]) for shape in RAGGED]
        for index, attrs in enumerate(self.sample.attrs):
            yield replace(self.case(f"attributes {index}", ragged[:5]), attrs=attrs)
        for line in self.lines[1:]:
            yield self.case("with numbers in memory", ragged, line)
        yield self.case("one place", ragged[4:5])
        yield self.case("misaligned", [replace(layout, shift=1) for layout in ragged])
        turned = [TensorLayout((9, 33), dtypes[0], strides=(1, 9)), TensorLayout((70,), dtypes[0])]
        yield self.case("transposed", turned)
        if self.name == "MultiSgd":
            yield self.case("many places", [TensorLayout((1 + i % 5,), dtypes[0]) for i in range(MANY)])
        yield from self._in_place(ragged)

    def _in_place(self, layouts: Sequence[TensorLayout]) -> Iterator[Case]:
        (info,) = (info for info in _C.ops() if info["name"] == self.name)
        plain = self.case("in place", layouts)
        count = len(layouts)
        aliases = {
            output * count + i: source * count + i
            for output, source in info["in_place"]
            for i in range(count)
            if layouts[i].shape and plain.inputs[source * count + i] == plain.outputs[output * count + i]
        }
        if aliases and "BiasCorr" not in self.name:
            yield replace(plain, aliases=aliases)

    def refusals(self) -> Iterator[Refusal]:
        first = (self.sample.dtypes or ("float32",))[0]
        layouts = [TensorLayout((4, 6), first), TensorLayout((5,), first)]
        plain = self.case("", layouts)
        yield from misuses(self.name, self.case("right", layouts[:1]))
        other = [replace(y, shape=(7,)) if y.shape == (5,) else y for y in plain.outputs]
        if any(x.shape for x in plain.inputs):
            yield Refusal(
                "another shape", plain.inputs, tuple(other), "place 1 of the lists: ", plain.attrs
            )  # fmt: skip
        yield Refusal(
            "lists of two lengths",
            plain.inputs[:-1],
            plain.outputs,
            f"{self.name} takes {len(self.lines[0]['inputs'])}",
            plain.attrs,
            status="InvalidArgument",
        )
        if plain.inputs[0] != layouts[0]:
            return
        for name, output, offset in (("a part of its place", 0, 4), ("another place", 1, 0)):
            yield Refusal(
                f"an output that overlaps {name}",
                plain.inputs,
                plain.outputs,
                f"output {output} overlaps input 0",
                plain.attrs,
                overlaps={output: (0, offset)},
                status="InvalidArgument",
            )

    def row(self) -> OpRow:
        (info,) = (info for info in _C.ops() if info["name"] == self.name)
        return OpRow(
            _snake(self.name), self.name, info["schema"], self.reference, self.cases, self.refusals, True
        )


def _global_norm(inputs: Sequence[Array], attrs: Attrs) -> list[Array]:  # noqa: ARG001 - it has none
    return [np.sqrt(np.array(sum(float((x.astype(np.float64) ** 2).sum()) for x in inputs)))]


def _found_inf(inputs: Sequence[Array], attrs: Attrs) -> list[Array]:  # noqa: ARG001 - it has none
    before, *tensors = inputs
    return [np.where(all(np.isfinite(x).all() for x in tensors), before, 1.0)]


def _reduction_cases(singles: int) -> Callable[[], Iterator[Case]]:
    def case(
        name: str, layouts: Sequence[TensorLayout], dtype: str, result: TensorLayout | None = None
    ) -> Case:
        first = (TensorLayout((), dtype),) * singles
        return Case(name, (*first, *layouts), (result or TensorLayout((), dtype),))

    def cases() -> Iterator[Case]:
        for dtype in (*FLOATS, "float64"):
            yield case(f"{dtype}, ragged", [TensorLayout(shape, dtype) for shape in RAGGED], dtype)
        yield case("an empty tensor", [TensorLayout((0,))], "float32")
        yield case("one axis", [TensorLayout((70,))], "float32", TensorLayout((1,)))
        yield case("a result in float64", [TensorLayout((70,)), TensorLayout((3,), "float16")], "float64")
        yield case("misaligned", [TensorLayout((5000,), shift=1)] * 3, "float32")
        yield case("transposed", [TensorLayout((90, 100), strides=(1, 90))], "float32")
        yield case("many places", [TensorLayout((1 + i % 5,)) for i in range(MANY_SINGLE)], "float32")
        if singles:
            yield replace(case("in place", [TensorLayout((70,))], "float32"), aliases={0: 0})
            yield replace(case("special values", [TensorLayout((144,))], "float32"), special=True)

    return cases


def _reduction_refusals(name: str, singles: int) -> Callable[[], Iterator[Refusal]]:
    def refusals() -> Iterator[Refusal]:
        row, number = TensorLayout((5,)), TensorLayout(())
        first = (number,) * singles
        yield from misuses(name, Case("right", (*first, row), (number,)))
        whole = (TensorLayout((5,), "int64"),)
        yield Refusal("integers", (*first, *whole), (number,), "a tensor is int64, not a real")
        yield Refusal("a result of five", (*first, row), (row,), "float32[5], not one number")
        if singles:
            yield Refusal("five before", (row, row), (number,), "float32[5], not one number")

    return refusals


def list_rows() -> tuple[OpRow, ...]:
    """Return a row for each op on lists."""
    lines = _C.pointwise_ops()
    by_name = {line["name"]: line for line in lines}
    known = samples()
    forms = [
        _Form(name, known[op], tuple(line for line in lines if line["kind"] == by_name[op]["kind"])).row()
        for name, op in FORMS.items()
    ]
    reductions = [
        OpRow(
            _snake(name), name, None, reference, _reduction_cases(singles), _reduction_refusals(name, singles)
        )
        for name, reference, singles in (("GlobalNorm", _global_norm, 0), ("FoundInf", _found_inf, 1))
    ]
    return (*forms, *reductions)
