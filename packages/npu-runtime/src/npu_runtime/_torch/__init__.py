"""Private torch APIs that running graphs needs, each behind one name; nothing else touches them.

In and out: objects of PyTorch. Open `fast_calls.py` first; `tracing_context.py` for training steps.
"""
