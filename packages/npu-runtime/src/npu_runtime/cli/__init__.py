"""Commands that npu-runtime adds to ``npu``, one module each.

In: parsed arguments. Out: an exit status. Open `bench.py` first.
"""
