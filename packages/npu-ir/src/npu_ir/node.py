"""Values and nodes of a graph, as plugins import them; they are defined in `npu_ir.core.node`."""

from npu_ir.core.node import Argument, InputKind, OpNode, Origin, Provenance, Value

__all__ = ["Argument", "InputKind", "OpNode", "Origin", "Provenance", "Value"]
