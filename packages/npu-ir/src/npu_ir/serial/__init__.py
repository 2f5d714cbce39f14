"""The file form of a graph: a JSON document, with its tensors in a safetensors file beside it."""

from npu_ir.serial.load import load_ir
from npu_ir.serial.save import save_ir

__all__ = ["load_ir", "save_ir"]
