"""The pipeline ``cpu``: passes that make graphs faster on CPUs, and their cost model.

In: a graph of ATen ops. Out: the same graph with packed weights, other layouts and fused ops. Open
`passes.py` first.
"""
