"""Lowering: nodes to instructions, partitions to calls of backends, fused views, in-place reuse.

In: a graph and the assignment of its nodes. Out: instructions, one callable each with its operands. Open
`instruction.py` first, then `lower.py`.
"""
