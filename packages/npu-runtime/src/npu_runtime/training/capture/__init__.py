"""Execution of a step over fixed memory: warm-up, recording by the device, replay.

In: a graph and the weights to bind it to. Out: a ``Runner``, chosen in ``Capturing.on``.
"""
