"""Who runs each node of a graph, and why not another backend."""

from npu_runtime.explaining.explanation import Explanation, NodeExplanation, Total
from npu_runtime.explaining.making import explain, explain_graph

__all__ = ["Explanation", "NodeExplanation", "Total", "explain", "explain_graph"]
