"""Differences of two graphs: matched nodes, changed attributes, report.

In: two graphs. Out: a `GraphDiff` that prints, or becomes JSON or a drawing. Open `builder.py` first.
"""

from npu_ir.diff.builder import diff_ir
from npu_ir.diff.entries import LineDiff, NodeDiff, Status
from npu_ir.diff.graph_diff import GraphDiff

__all__ = ["GraphDiff", "LineDiff", "NodeDiff", "Status", "diff_ir"]
