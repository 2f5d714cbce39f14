"""Dumps of a step after each stage of its compilation, as text and as JSON."""
