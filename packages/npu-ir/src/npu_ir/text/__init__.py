"""Notation of graphs as text: tokens, operands, tensor data, and the printer.

In: a graph. Out: readable, deterministic text, which `serial/parser.py` parses back to an equal graph. Open
`printer.py` first.
"""
