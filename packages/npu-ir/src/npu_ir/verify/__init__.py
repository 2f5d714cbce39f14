"""Verification of a graph against its model, down to the first node that differs."""

from npu_ir.verify.comparison import Comparison, compare
from npu_ir.verify.verifier import Divergence, VerificationReport, verify_ir

__all__ = ["Comparison", "Divergence", "VerificationReport", "compare", "verify_ir"]
