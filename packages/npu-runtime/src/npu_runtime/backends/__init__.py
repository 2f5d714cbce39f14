"""Backends by name, and the assignment of nodes to them.

In: a graph and names of backends, in order of preference. Out: for each node the backend that runs it, and
why the others do not. Open `partition.py` first.
"""
