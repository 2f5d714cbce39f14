"""Tuning: measured costs of nodes on each backend, and the fastest pipeline.

In: a graph, weights, the arguments of a call. Out: `MeasuredCosts`, which an executor takes. Open `tune.py`
first.
"""

from npu_runtime.diagnostics.tune.tune import tune

__all__ = ["tune"]
