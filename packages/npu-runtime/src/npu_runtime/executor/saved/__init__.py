"""Saved executors: an optimized graph with its plan, and its weights as calls read them, in one file.

In: the parts of an executor, or a path. Out: a file, written atomically; or the parts, with weights mapped
from it. Open `executor_file.py` first, then `stored_tensors.py` and `environment.py`.
"""
