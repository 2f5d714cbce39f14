"""Passes over training steps: losses, gradients, optimizers, scalars as tensors.

In: the graph of a traced step. Out: the same step with fewer, larger ops. Open `fuse_optimizer/` first.
"""
