"""Verification: comparison of a graph with its model, and search for the first node that differs.

In: a model, its graph, arguments. Out: a `VerificationReport`. Open `verifier.py` first.
"""

from npu_ir.verify.comparison import Comparison, compare
from npu_ir.verify.verifier import Divergence, VerificationReport, verify_ir

__all__ = ["Comparison", "Divergence", "VerificationReport", "compare", "verify_ir"]
