"""Algebra of symbolic sizes: expressions over symbols, ranges, constraints.

In: symbols and integers. Out: normalized expressions that compare, substitute and print; no PyTorch is
needed. Open `expressions.py` first.
"""
