"""The interface of backends, as plugins import it; it is defined in `npu_ir.plugins.backend`."""

from typing import TYPE_CHECKING

from npu_ir.core.lazy_names import lazy_names
from npu_ir.plugins.backend import Backend, BackendOp, Captured, Operand, RowLoop, StepLoop, Temporary

if TYPE_CHECKING:
    from npu_ir.graph.partition import PartitionGraph

__all__ = [
    "Backend",
    "BackendOp",
    "Captured",
    "Operand",
    "PartitionGraph",
    "RowLoop",
    "StepLoop",
    "Temporary",
]

# Lazily: graphs stand above the interface of backends.
__getattr__, __dir__ = lazy_names(__name__, {"PartitionGraph": "npu_ir.graph.partition"})
