"""The text form of a graph: readable, deterministic, and parsed to an equal graph."""

from npu_ir.serial.parser import parse_ir
from npu_ir.text.printer import format_ir

__all__ = ["format_ir", "parse_ir"]
