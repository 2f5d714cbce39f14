"""What came of a case."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Outcome:
    """One call of one case, on one device.

    Attributes:
        way: How the op was called: "op_call", "launch_by_id", "program", "graph".
        kernel: Which kernel ran, where that is known.
        status: What was reported; ``expected_status`` is what should have been.
        error: The largest relative error of an output; 0 also where nothing is compared.
        tolerance: What it may be.
        wrong: What is wrong, in words; empty if nothing is.
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
