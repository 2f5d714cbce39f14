"""What a row of the table is made of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from npu_cuda.testing.dtypes import Array

Attrs = Mapping[str, float]
Reference = Callable[[Sequence[Array], Attrs], "list[Array]"]


@dataclass(frozen=True, slots=True)
class TensorLayout:
    """Shape, dtype and place of a tensor.

    Attributes:
        strides: In elements; None stands for contiguous.
        shift: Elements by which the first one misses an address that 256 divides.
    """

    shape: tuple[int, ...]
    dtype: str = "float32"
    strides: tuple[int, ...] | None = None
    shift: int = 0


@dataclass(frozen=True, slots=True)
class Case:
    """A call that works.

    Attributes:
        aliases: Output by number to the input whose tensor it is.
        special: Inputs hold NaN, infinities, -0.0, subnormal and huge numbers, in all combinations.
        exact: The result is the reference, rounded; else the tolerance of the dtype holds.
        unread: Inputs that must not matter: they hold NaN.
        terms: How many products a sum has: errors grow with its root.
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


@dataclass(frozen=True, slots=True)
class Refusal:
    """A call that fails, and how.

    Attributes:
        status: What op_call reports. launch_by_id reports InvalidArgument: who names a kernel says that it fits.
        match: A part of the text of the error of op_call.
        raw_attrs: Schema id and bytes, in place of ``attrs``.
        overlaps: Output by number to the input in whose memory it is, and the elements it starts after it.
    """

    name: str
    inputs: tuple[TensorLayout, ...]
    outputs: tuple[TensorLayout, ...]
    status: Literal["InvalidArgument", "NotImplemented"]
    match: str
    attrs: Attrs = field(default_factory=dict)
    raw_attrs: tuple[int, bytes] | None = None
    overlaps: Mapping[int, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OpRow:
    """An op, as the table has it.

    Attributes:
        name: For the command line: "relu".
        op: As the registry has it: "EltwiseRelu".
        schema: Of its attributes; None if it has none.
        reference: Inputs (floats as float64) and attributes to the outputs.
        cases: Calls that work.
        refusals: Calls that fail.
    """

    name: str
    op: str
    schema: str | None
    reference: Reference
    cases: Callable[[], Iterable[Case]]
    refusals: Callable[[], Iterable[Refusal]]
