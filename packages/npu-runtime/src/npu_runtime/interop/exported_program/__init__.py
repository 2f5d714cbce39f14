"""A graph back as a program of PyTorch's, for any tool that takes one."""

from npu_runtime.interop.exported_program.program import to_exported_program, to_torch

__all__ = ["to_exported_program", "to_torch"]
