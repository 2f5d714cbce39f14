"""The difference of two graphs: two graphs in, a `GraphDiff` out; open `builder.py` first."""

from npu_ir.diff.builder import diff_ir
from npu_ir.diff.graph_diff import GraphDiff, LineDiff, NodeDiff, Status

__all__ = ["GraphDiff", "LineDiff", "NodeDiff", "Status", "diff_ir"]
