"""Who runs each node of a graph, and why not another backend."""

from npu_runtime.diagnostics.explain.explain import explain, explain_graph
from npu_runtime.diagnostics.explain.explanation import Explanation, NodeExplanation, Total

__all__ = ["Explanation", "NodeExplanation", "Total", "explain", "explain_graph"]
