"""Private torch APIs, each behind one name; nothing else touches them.

In: tensors, FX nodes and exported programs of PyTorch. Out: plain Python data, or objects of PyTorch; no type
of the IR. Open `ops.py` first; `export.py` for symbolic sizes.
"""
