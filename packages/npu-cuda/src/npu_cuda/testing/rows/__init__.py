"""Cases of the kernel tests, one module per kind of op.

In: nothing. Out: rows of the table in `table.py`. Open `elementwise.py` first.
"""
