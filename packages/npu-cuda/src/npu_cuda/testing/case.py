"""Rows of the test table: ops, cases, refusals and tensor layouts; and outcomes of calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from numpy.typing import NDArray

Array = NDArray[Any]
Attrs = Mapping[str, Any]
# The numbers that inputs have: all, more than 0, all but 0; or more than 0 and one NaN, in the first input.
Domain = Literal["any", "positive", "not zero", "one NaN"]
# Of inputs and attributes; that of a sized row takes the shapes of the outputs, too.
Reference = Callable[..., "list[Array]"]


@dataclass(frozen=True, slots=True)
class TensorLayout:
    """Shape, dtype, strides and alignment of a tensor.

    Attributes:
        strides: In elements; None stands for contiguous.
        shift: Offset of the first element from a 256-byte boundary, in elements.
    """

    shape: tuple[int, ...]
    dtype: str = "float32"
    strides: tuple[int, ...] | None = None
    shift: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """A valid call.

    Attributes:
        aliases: Output index to the index of the input that it aliases.
        special: Inputs hold NaN, infinities, -0.0, subnormal and huge numbers, in all combinations.
        exact: The result is the reference, rounded; else the tolerance of the dtype holds.
        unread: Inputs that must not be read: they hold NaN.
        terms: Number of products per sum: errors grow with its root.
        domain: The numbers that the inputs have.
        indices: Inputs that are indices, and the size of the axis of each.
    """

    name: str
    inputs: tuple[TensorLayout, ...]
    outputs: tuple[TensorLayout, ...]
    attrs: Attrs = field(default_factory=dict)
    aliases: Mapping[int, int] = field(default_factory=dict)
    special: bool = False
    exact: bool = False
    unread: tuple[int, ...] = ()
    terms: int = 1
    domain: Domain = "any"
    indices: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Refusal:
    """An invalid call and its expected failure.

    Attributes:
        match: Part of the error text of op_call.
        raw_attrs: Schema id and bytes, in place of ``attrs``.
        overlaps: Output index to the input whose memory it shares, and its offset in elements.
        status: What op_call reports. launch_by_id reports InvalidArgument: its caller vouches for the kernel.
    """

    name: str
    inputs: tuple[TensorLayout, ...]
    outputs: tuple[TensorLayout, ...]
    match: str
    attrs: Attrs = field(default_factory=dict)
    raw_attrs: tuple[int, bytes] | None = None
    overlaps: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    status: Literal["InvalidArgument", "NotImplemented"] = "NotImplemented"


@dataclass(frozen=True, slots=True)
class OpRow:
    """An op of the table.

    Attributes:
        name: For the command line: "relu".
        op: Its name in the registry: "EltwiseRelu".
        schema: That of its attributes; None if it has none.
        reference: Computes the outputs from inputs (floats as float64) and attributes.
        cases: Valid calls.
        refusals: Invalid calls.
        sized: Inputs and attributes do not determine the shapes of the outputs.
    """

    name: str
    op: str
    schema: str | None
    reference: Reference
    cases: Callable[[], Iterable[Case]]
    refusals: Callable[[], Iterable[Refusal]]
    sized: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one call of a case on one device.

    Attributes:
        way: The kind of call: "op_call", "launch_by_id", "program", "graph".
        kernel: The id of the kernel, if known.
        status: The reported status; ``expected_status`` is the right one.
        error: The largest relative error of an output; 0 also if nothing is compared.
        tolerance: The limit of the error.
        wrong: Description of what is wrong; empty if nothing is.
    """

    op: str
    case: str
    device: str
    way: str
    kernel: str
    expected_status: str
    status: str
    error: float = 0.0
    tolerance: float = 0.0
    wrong: str = ""

    @property
    def passed(self) -> bool:
        return not self.wrong
