"""Diagnostics: comparison of runs, profiles, explanations of backends, measured choices.

In: executors, graphs, models. Out: reports that print and become JSON. Open the folder of the question:
`compare`, `profile`, `explain` or `tune`.
"""
