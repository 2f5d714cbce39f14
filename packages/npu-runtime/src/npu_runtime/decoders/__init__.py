"""Decoders: language models of transformers as graphs that generate text.

In: a model or a configuration of transformers, weights or a checkpoint on disk, and prompts. Out: tokens.
Open `extract.py` first: it captures the model with a cache of fixed size; then `decoder.py`, which runs it.
"""
