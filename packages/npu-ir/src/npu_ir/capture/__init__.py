"""Capture of a PyTorch model as a graph: export, functionalize, convert."""

from npu_ir.capture.convert import Converter, convert_exported_program
from npu_ir.capture.empty_parameters import empty_weights
from npu_ir.capture.extract import extract_ir
from npu_ir.capture.graph_module import convert_graph_module

__all__ = ["Converter", "convert_exported_program", "convert_graph_module", "empty_weights", "extract_ir"]
