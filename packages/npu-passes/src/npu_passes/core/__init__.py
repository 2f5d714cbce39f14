"""The pass interface: passes, their options, pipelines, their text form, their order, the registry, one edit.

In: classes of passes. Out: frozen passes by name, and `Edit`, through which they change a graph. Open
`base.py` first; `registry.py` finds passes by name.
"""
