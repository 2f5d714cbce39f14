"""Code generation: instructions as one straight-line Python function.

In: instructions. Out: compiled Python source that frees each value after its last use, and the live ranges
of a run. Open `compiler.py` first.
"""
