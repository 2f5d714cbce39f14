"""Cases of the kernel tests, one module per op.

In: nothing. Out: rows of the table in `table.py`. Open `relu.py` first.
"""
