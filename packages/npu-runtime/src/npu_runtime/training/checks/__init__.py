"""Checks for steps that a replay would get wrong: before the capture, and by replaying.

In: a graph, a traced step or an artifact. Out: a `CaptureReport`. Start with `check_capture` and
`check_replay`.
"""
