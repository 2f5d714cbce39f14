"""Reference interpreter: the semantics of a graph, node by node.

In: a graph, weights, arguments. Out: results and the new content of mutated state, as eager PyTorch
computes them. Open `interpreter.py` first, then `run_nodes.py`.
"""
