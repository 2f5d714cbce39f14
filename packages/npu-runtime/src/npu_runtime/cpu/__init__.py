"""Passes and pipelines that make graphs faster on a CPU."""
