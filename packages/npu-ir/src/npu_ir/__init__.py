"""npu-ir: any PyTorch model as a clean, weight-free, functional graph of ATen ops."""

import warnings
from typing import TYPE_CHECKING

with warnings.catch_warnings():
    # Without NumPy, importing PyTorch warns; nothing here needs NumPy.
    warnings.filterwarnings("ignore", message="Failed to initialize NumPy")
    import torch  # noqa: F401

from npu_ir.core.isolation import pause_gc
from npu_ir.core.lazy_names import lazy_names

# A collection would traverse every object PyTorch has allocated, which takes longer than these imports.
with pause_gc():
    from npu_ir.capture import Converter, convert_exported_program, empty_weights, extract_ir
    from npu_ir.core.node import Argument, InputKind, OpNode, Origin, Provenance, Value
    from npu_ir.core.structure import Structure
    from npu_ir.core.types import ScalarType, TensorType
    from npu_ir.diff import GraphDiff, diff_ir
    from npu_ir.errors import (
        BackendError,
        CaptureWarning,
        ConversionError,
        ExecutionError,
        ExportError,
        FactoryError,
        GraphError,
        NpuError,
        ParseError,
        PluginError,
        RegistryError,
        SerializationError,
        UsageError,
        VerificationError,
        VisualizationError,
        WeightError,
    )
    from npu_ir.graph.graph import Graph
    from npu_ir.interpreter.interpreter import Interpreter, execute_ir
    from npu_ir.ops import list_registered_ops, register_conversion, register_executor
    from npu_ir.plugins.plugin_manager import PluginWarning
    from npu_ir.serial import check_compatibility, load_ir, migrate_ir, save_ir
    from npu_ir.serial.checkpoints import load_weights
    from npu_ir.serial.compatibility import CompatibilityReport
    from npu_ir.serial.parser import parse_ir
    from npu_ir.symbolic.constraints import Constraint, Range
    from npu_ir.symbolic.expressions import Expr
    from npu_ir.text.printer import format_ir
    from npu_ir.verify import VerificationReport, verify_ir

if TYPE_CHECKING:
    from npu_ir.viz import draw, draw_diff, to_dot, to_html, to_mermaid, to_svg, write_html

__version__ = "0.1.0"

__all__ = [
    "Argument",
    "BackendError",
    "CaptureWarning",
    "CompatibilityReport",
    "Constraint",
    "ConversionError",
    "Converter",
    "ExecutionError",
    "ExportError",
    "Expr",
    "FactoryError",
    "Graph",
    "GraphDiff",
    "GraphError",
    "InputKind",
    "Interpreter",
    "NpuError",
    "OpNode",
    "Origin",
    "ParseError",
    "PluginError",
    "PluginWarning",
    "Provenance",
    "Range",
    "RegistryError",
    "ScalarType",
    "SerializationError",
    "Structure",
    "TensorType",
    "UsageError",
    "Value",
    "VerificationError",
    "VerificationReport",
    "VisualizationError",
    "WeightError",
    "__version__",
    "check_compatibility",
    "convert_exported_program",
    "diff_ir",
    "draw",
    "draw_diff",
    "empty_weights",
    "execute_ir",
    "extract_ir",
    "format_ir",
    "list_registered_ops",
    "load_ir",
    "load_weights",
    "migrate_ir",
    "parse_ir",
    "register_conversion",
    "register_executor",
    "save_ir",
    "to_dot",
    "to_html",
    "to_mermaid",
    "to_svg",
    "verify_ir",
    "write_html",
]

# The rest is for drawing, which is a quarter of the import time.
_MODULES = dict.fromkeys(set(__all__) - globals().keys(), "npu_ir.viz")
__getattr__, __dir__ = lazy_names(__name__, _MODULES)
