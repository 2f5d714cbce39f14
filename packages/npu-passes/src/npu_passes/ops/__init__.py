"""Custom ops of the namespace ``npu``: fused groups, gradients, optimizer steps.

In: nothing; importing a module registers its ops with PyTorch. Out: ``torch.ops.npu.*`` with kernels and
shape functions. Open `fused.py` first.
"""
