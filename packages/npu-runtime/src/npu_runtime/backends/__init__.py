"""Backends by name, and which of them runs which node."""
