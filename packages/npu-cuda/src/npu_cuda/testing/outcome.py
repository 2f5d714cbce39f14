"""Outcomes of calls."""

from __future__ import annotations

from dataclasses import dataclass


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
