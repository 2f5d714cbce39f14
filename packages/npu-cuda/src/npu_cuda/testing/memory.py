"""Tensors between canaries, which reveal out-of-bounds reads and writes, and those of one call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod

import numpy as np

from npu_cuda import _C
from npu_cuda.attributes import attrs as pack
from npu_cuda.testing.case import Array, Attrs, Case, OpRow, TensorLayout
from npu_cuda.testing.tolerance import error_of, tolerance_of
from npu_cuda.testing.values import decode, encode, inputs_of, storage_of

START = 256  # bytes before the tensor; keeps its alignment, and holds the canary
CANARY = 64  # bytes after it

# Around inputs: NaN in each float dtype, so that a read there spoils the result.
INPUT_CANARY = b"\xa5\xff"
# Around outputs: not NaN, so that a NaN written there is seen.
OUTPUT_CANARY = b"\x5a\x3c"
POISON = b"\xff"  # NaN, too: the initial content of an output


@lru_cache(maxsize=1024)
def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(prod(max(size, 1) for size in shape[axis + 1 :]) for axis in range(len(shape)))


class GuardedTensor:
    """A tensor of a layout on a device, in memory that is larger by two canaries.

    Args:
        layout: Shape, dtype, strides, alignment.
        device: As ``devices()`` names it.
        values: The elements; None for an output, whose elements are NaN.
        exact: Memory of the exact size without canaries, for tools that check bounds (AddressSanitizer).
    """

    def __init__(
        self, layout: TensorLayout, device: str, values: Array | None = None, *, exact: bool = False
    ):
        self.layout = layout
        item = storage_of(layout.dtype).itemsize
        strides = contiguous_strides(layout.shape) if layout.strides is None else layout.strides
        self._bytes_strides = tuple(stride * item for stride in strides)
        self._start = (0 if exact else START) + layout.shift * item
        last = sum((size - 1) * stride for size, stride in zip(layout.shape, strides, strict=True))
        span = (last + 1) * item if prod(layout.shape) else 0
        size = self._start + span + (0 if exact else CANARY)
        canary = OUTPUT_CANARY if values is None else INPUT_CANARY
        self._written = np.frombuffer(bytearray(canary * -(-size // 2)), np.uint8)[:size]
        self._base = _C.empty((self._written.size,), "uint8", device)
        self.tensor = self._base.view(layout.shape, strides, self._start // item, layout.dtype)
        if values is None:
            self._elements(self._written)[...] = np.frombuffer(POISON * item, storage_of(layout.dtype))
            self._base.copy_from(self._written.tobytes())
        else:
            self.write(values)

    def _elements(self, memory: Array) -> Array:
        storage = storage_of(self.layout.dtype)
        if prod(self.layout.shape) == 0:
            return np.empty(self.layout.shape, storage)
        return np.ndarray(self.layout.shape, storage, memory.data, self._start, self._bytes_strides)

    def write(self, values: Array) -> None:
        """Write the elements."""
        self._elements(self._written)[...] = encode(values, self.layout.dtype)
        self._base.copy_from(self._written.tobytes())

    def stored_elements(self) -> Array:
        """Return the elements on the device in their storage dtype."""
        return self._elements(np.frombuffer(self._base.to_bytes(), np.uint8)).copy()

    def values(self) -> Array:
        return decode(self.stored_elements(), self.layout.dtype)

    def describe_stray_writes(self, *, elements_too: bool) -> str:
        """Describe writes outside of the elements, or also into them; "" if there are none."""
        now = np.frombuffer(bytearray(self._base.to_bytes()), np.uint8)
        if not elements_too:
            self._elements(now)[...] = self._elements(self._written)
        wrong = np.flatnonzero(now != self._written)
        if wrong.size == 0:
            return ""
        first = int(wrong[0]) - self._start
        return (
            f"{wrong.size} bytes were written that are not its own, the first at byte "
            f"{first} of {self.tensor!r}"
        )


def pack_attrs(schema: str | None, attrs: Attrs) -> tuple[int, bytes]:
    """Return schema id and bytes; missing attributes have their defaults, no attributes are schema 0.

    The attribute "payload" is the bytes after the fields.
    """
    if not schema or not attrs:
        return 0, b""
    schema_id, packed = pack(schema, **{name: value for name, value in attrs.items() if name != "payload"})
    return schema_id, packed + attrs.get("payload", b"")


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
        whole = np.broadcast_to(expected, output.layout.shape)
        error, text = error_of(output.stored_elements(), whole, output.layout.dtype, tolerance)
        worst, allowed = max(worst, error), max(allowed, tolerance.relative)
        if text:
            return worst, allowed, f"output {i}: {text}"
    return worst, allowed, ""


@lru_cache(maxsize=1)  # a case is called in many ways
def reference_of(row: OpRow, case: Case) -> list[Array]:
    attrs = dict(case.attrs)
    if row.schema is not None:
        attrs = {name: default for name, _, default in _C.attr_schemas()[row.schema]["fields"]} | attrs
    shapes = [[layout.shape for layout in case.outputs]] if row.sized else []
    return row.reference(inputs_of(case), attrs, *shapes)
