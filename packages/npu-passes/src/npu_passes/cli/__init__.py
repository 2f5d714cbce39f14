"""Commands that npu-passes adds to ``npu``, one module each.

In: parsed arguments. Out: an exit status. Open `opt.py` first.
"""
