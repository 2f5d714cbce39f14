"""Checks of a step: what prevents its capture.

In: training components, graphs, plans. Out: violations, each with its fix. Open `capture_check.py` first.
"""
