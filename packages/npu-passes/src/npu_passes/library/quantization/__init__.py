"""Passes that store weights in fewer bits.

In: a graph with linear layers. Out: the same graph, whose prologue makes integers and scales of their
weights. Open `quantize_weights.py` first.
"""
