"""Data model of the IR: values, nodes, types, literals, pytrees, and the content of tensors.

In: Python and PyTorch objects. Out: frozen data and the node classes that every other folder works on;
nothing here edits a graph. Open `node.py` first.
"""
