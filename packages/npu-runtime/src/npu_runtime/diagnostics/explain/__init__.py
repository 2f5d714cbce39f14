"""Explanations of a graph's partitioning: the backend of each node, and the reasons of the others."""

from npu_runtime.diagnostics.explain.explain import explain, explain_graph
from npu_runtime.diagnostics.explain.explanation import Explanation, NodeExplanation, Total

__all__ = ["Explanation", "NodeExplanation", "Total", "explain", "explain_graph"]
