"""Decomposition: an op as the calls that PyTorch's own decomposition of it makes.

In: a node. Out: nodes of simpler ops in its place. Open `expansion.py` first.
"""
