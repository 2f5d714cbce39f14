"""The prologue, run ahead of time: results of nodes that depend on weights alone become weights.

In: a graph with a prologue, and its weights. Out: a graph without one, and the weights it takes. Open
`bake.py` first.
"""
