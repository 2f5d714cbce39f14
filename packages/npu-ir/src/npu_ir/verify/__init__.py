"""Does a graph compute what its model computes, and if not, from which node on?"""

from npu_ir.verify.comparison import Comparison, compare
from npu_ir.verify.verifier import Divergence, VerificationReport, verify_ir

__all__ = ["Comparison", "Divergence", "VerificationReport", "compare", "verify_ir"]
