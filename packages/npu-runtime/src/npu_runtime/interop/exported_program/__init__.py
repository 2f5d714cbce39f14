"""Conversion of a graph to an exported program of PyTorch, or to a module."""

from npu_runtime.interop.exported_program.program import to_exported_program, to_torch

__all__ = ["to_exported_program", "to_torch"]
