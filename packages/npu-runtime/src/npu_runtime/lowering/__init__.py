"""Lowering: nodes to instructions, partitions to calls of backends, fused views, in-place reuse.

In: a graph and backends. Out: a `LoweredGraph`, which needs no device; then instructions for a device, one
callable each with its operands. Open `lowered_graph.py` first, then `instruction_selection.py`.
"""
