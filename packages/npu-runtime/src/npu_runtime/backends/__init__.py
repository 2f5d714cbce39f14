"""Backends by name, partitions of a graph, and the rules for what a backend lowers them to.

In: a graph and backends, in order of preference. Out: for each node the backend that runs it, by cost where
costs are stated, and why the others do not. Open `partition.py` first.
"""
