"""The executor: a graph compiled once, with its weights, called often.

In: a graph, weights, then arguments per call. Out: results, and buffers that advance. Open `executor.py`
first (the interface), then `engine.py` (one call).
"""
