"""Diagnostics: comparison of runs, profiles, explanations of backends.

In: executors, graphs, models. Out: reports that print and become JSON. Open the folder of the question:
`compare`, `profile` or `explain`.
"""
