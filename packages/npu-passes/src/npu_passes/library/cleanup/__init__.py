"""Passes that remove or normalize nodes without computing anything.

In: any graph. Out: fewer nodes, bit-equal results. Open `cse.py` first.
"""
