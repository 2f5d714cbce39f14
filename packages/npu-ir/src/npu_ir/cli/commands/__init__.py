"""Commands of ``npu``, one module each.

In: parsed arguments. Out: an exit status. ``add_to`` registers a command, ``run`` executes it. Open
`extract.py` first.
"""
