"""Passes that replace groups of nodes by one fused op.

In: any graph. Out: attention, norms and linear layers as single nodes, with stated numerics. Open
`fuse_linear_activation.py` first.
"""
