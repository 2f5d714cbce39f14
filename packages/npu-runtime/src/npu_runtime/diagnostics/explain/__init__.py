"""Explanations: the backend of each node, and why no other runs it.

In: an executor, a graph and backends, or a lowered graph. Out: an `Explanation`. Open `explain.py` first.
"""

from npu_runtime.diagnostics.explain.explain import explain, explain_graph, explain_lowered
from npu_runtime.diagnostics.explain.explanation import Explanation, NodeExplanation, Total

__all__ = ["Explanation", "NodeExplanation", "Total", "explain", "explain_graph", "explain_lowered"]
