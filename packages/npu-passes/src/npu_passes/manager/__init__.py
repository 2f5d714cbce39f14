"""Pass manager: runs passes to a fixpoint, verifies, times, dumps, and bisects failures.

In: a graph and passes. Out: a `PassResult` with the rewritten graph and statistics. Open `manager.py`
first, then `rounds.py`.
"""
