"""Graphs as `torch.export.ExportedProgram` and `torch.nn.Module`.

In: a graph and its weights. Out: a program that any tool of PyTorch takes. Open `program.py` first.
"""

from npu_runtime.interop.exported_program.program import to_exported_program, to_torch

__all__ = ["to_exported_program", "to_torch"]
