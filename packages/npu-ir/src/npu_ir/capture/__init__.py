"""From a PyTorch model to a graph: export, functionalize, convert."""

from npu_ir.capture.convert import Converter, convert_exported_program
from npu_ir.capture.extract import extract_ir

__all__ = ["Converter", "convert_exported_program", "extract_ir"]
