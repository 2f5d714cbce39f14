"""Tracing: from a step function, as written for PyTorch, to a graph.

In: a step function, its training components, a batch. Out: a `TracedStep`: the graph and what each of its
inputs is. Open `tracer.py` first.
"""
