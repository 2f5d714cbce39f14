"""Probing: what a call does, observed by making it once on sample inputs.

In: a node and an op. Out: its call traits (views, strides, shared storage) and its out-variants, if PyTorch
has any. Open `op_probe.py` first.
"""
