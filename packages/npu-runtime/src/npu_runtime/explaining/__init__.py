"""Explanations of a graph's partitioning: the backend of each node, and the reasons of the others."""

from npu_runtime.explaining.explanation import Explanation, NodeExplanation, Total
from npu_runtime.explaining.making import explain, explain_graph

__all__ = ["Explanation", "NodeExplanation", "Total", "explain", "explain_graph"]
