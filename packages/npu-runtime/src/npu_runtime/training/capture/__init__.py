"""Capture and replay: a compiled step over fixed memory, warmed up, recorded, run.

In: a compiled step. Out: a runner (planned program, CUDA graph, or executor) that replays it. Open
`select_runner.py` first.
"""
