"""Rules of the IR, as a table of checks, and the checks of single edits.

In: a graph, or an edit before it is made. Out: nothing, or a `GraphError` that names rule, node and fix.
Open `check.py` first: a rule is a row of its table `RULES`.
"""
