"""Comparison of two runs of one model, and search for the first value that differs.

In: two sides (graph, model, file, float64). Out: a `Comparison`, one row per value. Open `compare.py` first.
"""

from npu_runtime.diagnostics.compare.compare import compare
from npu_runtime.diagnostics.compare.comparison import NOISE_MULTIPLE, NOISE_MULTIPLE_RMS, Comparison, Row
from npu_runtime.diagnostics.compare.make_sides import after_pass
from npu_runtime.diagnostics.compare.metrics import Difference, Error
from npu_runtime.diagnostics.compare.reproduction import replay
from npu_runtime.diagnostics.compare.sides import Float64, float64

__all__ = [
    "NOISE_MULTIPLE",
    "NOISE_MULTIPLE_RMS",
    "Comparison",
    "Difference",
    "Error",
    "Float64",
    "Row",
    "after_pass",
    "compare",
    "float64",
    "replay",
]
