"""Compatibility: recorded schemas of ops compared with those of this process, and edits that migrate calls.

In: a graph and the schemas that its file records. Out: a `CompatibilityReport`, and rows of a document that
are edited to mean what they did. Open `comparison.py` first.
"""

from npu_ir.serial.compatibility.comparison import calls_by_op, compare_op
from npu_ir.serial.compatibility.report import Change, CompatibilityReport, OpCompatibility, Verdict

__all__ = ["Change", "CompatibilityReport", "OpCompatibility", "Verdict", "calls_by_op", "compare_op"]
