"""Guarded tensors of one call, and the check of their contents afterwards."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from npu_cuda import _C
from npu_cuda.testing.case import Attrs, Case, OpRow
from npu_cuda.testing.dtypes import Array
from npu_cuda.testing.guarded import GuardedTensor
from npu_cuda.testing.inputs import inputs_of
from npu_cuda.testing.tolerance import error_of, tolerance_of


def pack_attrs(schema: str | None, attrs: Attrs) -> tuple[int, bytes]:
    """Return schema id and bytes; missing attributes have their defaults, no attributes are schema 0."""
    if schema is None or not attrs:
        return 0, b""
    known = _C.attr_schemas()[schema]
    values = [attrs.get(name, default) for name, _, default in known["fields"]]
    return known["id"], struct.pack(known["format"], *values)


@dataclass(frozen=True, slots=True)
class CallMemory:
    """Inputs and outputs of a call; an output may alias an input."""

    inputs: Sequence[GuardedTensor]
    outputs: Sequence[GuardedTensor]
    aliases: Mapping[int, int]

    @classmethod
    def of(cls, case: Case, device: str, *, exact: bool = False) -> CallMemory:
        values = inputs_of(case)
        inputs = [
            GuardedTensor(layout, device, value, exact=exact)
            for layout, value in zip(case.inputs, values, strict=True)
        ]
        outputs = [
            inputs[case.aliases[i]] if i in case.aliases else GuardedTensor(layout, device, exact=exact)
            for i, layout in enumerate(case.outputs)
        ]
        return cls(inputs, outputs, case.aliases)

    def tensors(self) -> tuple[list[_C.Tensor], list[_C.Tensor]]:
        return [x.tensor for x in self.inputs], [y.tensor for y in self.outputs]

    def describe_stray_writes(self) -> str:
        """Describe writes to anything but the elements of outputs; "" if there are none."""
        written = set(self.aliases.values())
        for i, x in enumerate(self.inputs):
            if text := x.describe_stray_writes(elements_too=i not in written):
                return f"input {i}: {text}"
        for i, y in enumerate(self.outputs):
            if text := y.describe_stray_writes(elements_too=False):
                return f"output {i}: {text}"
        return ""


def check_results(row: OpRow, case: Case, memory: CallMemory) -> tuple[float, float, str]:
    """Return error, tolerance, and a description of what is wrong ("" if nothing) after a call."""
    if text := memory.describe_stray_writes():
        return 0.0, 0.0, text
    worst, allowed = 0.0, 0.0
    for i, expected in enumerate(reference_of(row, case)):
        output = memory.outputs[i]
        tolerance = tolerance_of(case, output.layout.dtype)
        error, text = error_of(output.stored_elements(), expected, output.layout.dtype, tolerance)
        worst, allowed = max(worst, error), max(allowed, tolerance.relative)
        if text:
            return worst, allowed, f"output {i}: {text}"
    return worst, allowed, ""


def reference_of(row: OpRow, case: Case) -> list[Array]:
    attrs = dict(case.attrs)
    if row.schema is not None:
        attrs = {name: default for name, _, default in _C.attr_schemas()[row.schema]["fields"]} | attrs
    return row.reference(inputs_of(case), attrs)
