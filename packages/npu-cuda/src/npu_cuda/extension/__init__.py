"""Ops and kernels from outside the build: Python functions and installed packages.

In: functions, entry points. Out: registered ops and kernels. Open `python_kernels.py` first.
"""
