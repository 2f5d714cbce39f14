"""The interface of backends, as plugins import it; it is defined in `npu_ir.plugins.backend`."""

from npu_ir.plugins.backend import Backend, BackendOp, Captured, Operand, Temporary

__all__ = ["Backend", "BackendOp", "Captured", "Operand", "Temporary"]
