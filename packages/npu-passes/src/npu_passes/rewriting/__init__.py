"""Questions and helpers of rewrites: arguments, layouts, aliasing, weight dependence, insertion.

In: nodes of a graph. Out: facts that hold in every run, or new nodes at the right position. Open
`aliasing.py` first.
"""
