"""Checks of a step: what prevents its capture, and whether a replay equals an eager step.

In: training components, graphs, compiled steps. Out: violations, each with its fix. Open `capture_check.py`
first.
"""
