"""Capture: from a PyTorch model to a graph, by export, functionalization and conversion.

In: an `nn.Module` and example arguments, or an exported program. Out: a weight-free functional `Graph`; the
model is left as it was. Open `extract.py` first, then `functionalize.py` and `convert.py`.
"""

from npu_ir.capture.convert import Converter, convert_exported_program
from npu_ir.capture.empty_parameters import empty_weights
from npu_ir.capture.extract import extract_ir
from npu_ir.capture.graph_module import convert_graph_module

__all__ = ["Converter", "convert_exported_program", "convert_graph_module", "empty_weights", "extract_ir"]
