"""Dumps: each stage of a compiled step as text and JSON files.

In: a graph, a lowered graph, a plan, a call log. Out: numbered files in one folder. Open `write_dumps.py`
first.
"""
