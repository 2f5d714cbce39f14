"""Tracing of an ordinary PyTorch step function into a graph.

In: a step function and its training components (``TrainingComponents``). Out: a `TracedStep`. Start with
`trace_function`.
"""
