"""Table-driven tests of ops on every device, for the ops of this package and for yours.

An op is a row: its cases, its refusals, and a reference in NumPy. ``run_case`` and ``run_refusal`` build
guarded tensors, call the op in every possible way, and report errors. ``python -m npu_cuda.probe``
runs a row by hand.

In: a table of cases. Out: outcomes of calls on a device. Open `table.py` first.
"""

from __future__ import annotations

from npu_cuda.errors import UnavailableError

try:
    import numpy  # noqa: F401
except ImportError as error:
    raise UnavailableError(
        "the tests of ops compute references with NumPy, which is not installed: "
        'python -m pip install "npu-cuda[testing]"'
    ) from error

from npu_cuda.testing.case import Case, OpRow, Outcome, Refusal, TensorLayout
from npu_cuda.testing.memory import GuardedTensor
from npu_cuda.testing.misuse import misuses
from npu_cuda.testing.runs import run_case, run_refusal
from npu_cuda.testing.table import row_of, rows
from npu_cuda.testing.tolerance import Tolerance, tolerance_of
from npu_cuda.testing.values import decode, encode

__all__ = [
    "Case",
    "GuardedTensor",
    "OpRow",
    "Outcome",
    "Refusal",
    "TensorLayout",
    "Tolerance",
    "decode",
    "encode",
    "misuses",
    "row_of",
    "rows",
    "run_case",
    "run_refusal",
    "tolerance_of",
]
