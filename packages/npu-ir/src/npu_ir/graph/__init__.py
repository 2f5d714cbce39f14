"""The graph: its signature, the methods that edit it, and operations on whole graphs.

In: values and nodes of `core`. Out: `Graph`, always consistent, and `same_graph`, `copy_graph`,
`specialize`, weight and argument binding. Open `graph.py` first, then `rules/check.py`.
"""
